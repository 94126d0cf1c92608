"""The options of an AdaPM step that may differ between parameter groups, and their bounds."""

from collections.abc import Mapping
from typing import Any, TypedDict

from optim.adapm.solvers import SOLVERS


class StepOptions(TypedDict, total=False):
    """The keyword options of `AdaPM` that may differ between parameter groups; `AdaPM` has their meaning."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    solver: str
    inner_iterations: int | None
    refresh_interval: int
    clip: float | None
    bias_correction: bool
    debias_moments: bool
    momentum_free_lr_scale: float
    seed: int


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError, in torch's own manner, for the first option out of its bounds."""
    beta1, beta2 = options["betas"]
    clip, iterations, interval = options["clip"], options["inner_iterations"], options["refresh_interval"]
    for valid, name, value, allowed in (
        (float(options["lr"]) >= 0.0, "learning rate", options["lr"], "at least 0"),
        (0.0 <= beta1 < 1.0, "beta parameter at index 0", beta1, "in [0, 1)"),
        (0.0 <= beta2 < 1.0, "beta parameter at index 1", beta2, "in [0, 1)"),
        (options["eps"] >= 0.0, "epsilon value", options["eps"], "at least 0"),
        (options["weight_decay"] >= 0.0, "weight_decay value", options["weight_decay"], "at least 0"),
        (options["solver"] in SOLVERS, "solver", options["solver"], f"one of {', '.join(SOLVERS)}"),
        (
            iterations is None or (isinstance(iterations, int) and iterations >= 1),
            "inner_iterations",
            iterations,
            "a whole number from 1, or None for the solver's own",
        ),
        (isinstance(interval, int) and interval >= 0, "refresh_interval", interval, "a whole number from 0 (never)"),
        (clip is None or clip > 0.0, "clip", clip, "above 0, or None for no clipping"),
        (
            options["momentum_free_lr_scale"] > 0.0,
            "momentum_free_lr_scale",
            options["momentum_free_lr_scale"],
            "above 0",
        ),
    ):
        if not valid:
            raise ValueError(f"Invalid {name}: {value}; it must be {allowed}")
