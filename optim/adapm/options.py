"""The options of an AdaPM step, which groups of parameters may have of their own, and what a step makes of them."""

from collections.abc import Mapping, Sequence
from math import inf
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, TypedDict

from torch import Tensor

from ..plan.blocks import Block, FirstMoment
from . import devices
from .devices import MATMUL_PRECISIONS
from .low_rank import Number, mixture
from .solvers import DENSE_SOLVER, SOLVERS


class StepOptions(TypedDict, total=False):
    """The keyword options of `AdaPM`, beside the learning rate, that may differ between parameter groups; `AdaPM` has
    their meaning."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    solver: str
    inner_iterations: int | None
    refresh_interval: int
    clip: float | None
    momentum_free_lr_scale: float
    seed: int
    matmul_precision: str | None
    bias_correction: bool
    debias_moments: bool
    master_weights: bool
    bf16_stochastic_round: bool
    capturable: bool


OPTIONS = ("lr", *StepOptions.__annotations__)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError, in torch's own manner, for the first option out of its bounds or of another type."""
    betas, clip = options["betas"], options["clip"]
    if not isinstance(betas, Sequence) or isinstance(betas, str) or len(betas) != 2:
        raise ValueError(f"Invalid betas: {betas!r}; they must be two numbers in [0, 1)")
    lr, eps, weight_decay, free_scale = itemgetter("lr", "eps", "weight_decay", "momentum_free_lr_scale")(options)
    solver, precision, choices = options["solver"], options["matmul_precision"], (None, *MATMUL_PRECISIONS)
    iterations, interval = options["inner_iterations"], options["refresh_interval"]
    flags = [name for name, kind in StepOptions.__annotations__.items() if kind is bool]
    has_iterations = iterations is None or (_is_whole(iterations) and iterations >= 1)
    for valid, name, value, allowed in (
        (_is_size(lr), "learning rate", lr, "a finite number, at least 0"),
        (_is_size(betas[0]) and betas[0] < 1.0, "beta parameter at index 0", betas[0], "in [0, 1)"),
        (_is_size(betas[1]) and betas[1] < 1.0, "beta parameter at index 1", betas[1], "in [0, 1)"),
        (_is_size(eps), "epsilon value", eps, "finite, at least 0"),
        (_is_size(weight_decay), "weight_decay value", weight_decay, "finite, at least 0"),
        (isinstance(solver, str) and solver in SOLVERS, "solver", solver, f"one of {', '.join(SOLVERS)}"),
        (has_iterations, "inner_iterations", iterations, "a whole number from 1, or None for 1"),
        (_is_whole(interval) and interval >= 0, "refresh_interval", interval, "a whole number from 0 (never)"),
        (clip is None or (_is_number(clip) and clip > 0.0), "clip", clip, "above 0, or None for no clipping"),
        (precision in choices, "matmul_precision", precision, f"{', '.join(MATMUL_PRECISIONS)}, or None for torch's"),
        (_is_size(free_scale) and free_scale > 0.0, "momentum_free_lr_scale", free_scale, "finite, above 0"),
        (_is_whole(options["seed"]), "seed", options["seed"], "a whole number"),
        *((isinstance(options[name], bool), name, options[name], "True or False") for name in flags),
    ):
        if not valid:
            raise ValueError(f"Invalid {name}: {value!r}; it must be {allowed}")
    if options["master_weights"] and options["bf16_stochastic_round"]:
        raise ValueError(
            "master_weights and bf16_stochastic_round are two ways to the same end, and exclude each other; take "
            "master_weights for exact weights at 4 bytes each, or bf16_stochastic_round for none"
        )
    if options["capturable"] and solver == DENSE_SOLVER:
        raise ValueError(
            f"capturable does not go with solver={solver!r}: torch's decompositions wait for the device; take subspace"
        )
    if options["capturable"] and options["bf16_stochastic_round"]:
        raise ValueError(
            "capturable does not go with bf16_stochastic_round: a CUDA graph would round by the chances of the step "
            "that it captured, over and over; take master_weights"
        )


def _is_number(value: object) -> bool:
    """Return whether it is one, a tensor of one included; YAML reads 1e-3 as text."""
    is_single = isinstance(value, Tensor) and value.numel() == 1
    return is_single or (isinstance(value, Real) and not isinstance(value, bool))


def _is_size(value: Any) -> bool:
    return _is_number(value) and 0.0 <= float(value) < inf


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


class StepSettings:
    """The numbers of one step of one group, worked out once."""

    def __init__(
        self, group: Mapping[str, Any], step: int, *, precision: str = "highest", counter: Tensor | None = None
    ) -> None:
        """Work out the settings of that group.

        Args:
            group: Of parameters.
            step: t = 1, 2, … With a counter, the t of the last look at it.
            precision: What torch is set to.
            counter: t on the device, for a capturable group: then a learning rate that is a tensor and what depends on
                t are there, too.
        """
        self.options, self.step, self.counter = group, step, counter
        self.beta1, self.beta2 = group["betas"]
        lr, interval, debias = group["lr"], group["refresh_interval"], group["debias_moments"]
        self.lr: Number = float(lr) if counter is None or not isinstance(lr, Tensor) else lr.to(counter.device).double()
        t: Number = step if counter is None else counter.double()
        self.momentum_debias: Number = 1.0 - self.beta1**t if debias else 1.0
        self.second_debias: Number = 1.0 - self.beta2**t if debias else 1.0
        self.mixture = mixture(self.beta1, bias_correction=group["bias_correction"], debias_at=t if debias else None)
        is_due = step == 1 or (interval > 0 and (step - 1) % interval == 0)
        self.fresh = is_due and not devices.is_capturing()
        """Whether the search for factors starts from fresh sketches. No graph does that."""
        self.matmul_precision: str = group["matmul_precision"] or precision
        """The precision of products with a gradient, and of A B."""
        self.on_device: dict[object, Tensor] = {}
        """The tensors that were put together on that device."""

    def lr_of(self, block: Block) -> Number:
        """Return the learning rate of such blocks."""
        return self.lr * (self.options["momentum_free_lr_scale"] if block.first_moment is FirstMoment.NONE else 1.0)
