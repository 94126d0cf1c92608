"""The default ranges of hyperparameters about what a candidate has by itself, for tuning of more than the rate. Pure.

All candidates get the same draws, each mapped to the candidate's own range, so the luck of the draws is alike where two
have the same defaults.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from types import MappingProxyType
from typing import Literal

from optim import catalog
from optim.catalog import Scalar
from orchestrator.tuning.search_spaces import OPTION_FACTOR, RATE_FACTOR
from orchestrator.tuning.tuner import Setting
from worker.spec.run import RunSpec, Workload

Axis = Literal["lr", "warmup", "beta1", "beta2", "weight_decay", "clip"]
AXES: tuple[Axis, ...] = ("lr", "warmup", "beta1", "beta2", "weight_decay", "clip")
FIELDS: Mapping[Axis, str] = MappingProxyType({axis: axis for axis in AXES}) | {
    "warmup": "warmup_steps",
    "clip": "clip_grad_norm",
}
"""The name of an axis's value in specifications and tables."""
WORDS: Mapping[Axis, str] = MappingProxyType({"warmup": "warm-up", "weight_decay": "weight decay"})
WIDEST_SLACK = 0.9
"""The largest 1 - beta: a beta below 0.1 would be no average."""
WARMUP_SHARES = (0.01, 0.2)
"""The shares of all steps, if there is no warm-up to begin with."""
USUAL_CLIP = 1.0
"""The middle of the range where gradients are not clipped (AdaPM's paper, section 5.1)."""
DIGITS = 4
"""Drawn values are rounded to so many digits."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The range of one axis, uniform in the logarithm."""

    own: Scalar
    """The candidate's own value without a search; it may be no warm-up or no clipping, off the scale."""
    low: float
    high: float
    """The upper end; of a beta, as 1 - beta."""


def priors(
    optimizer: str, options: Mapping[str, Scalar], own_rate: float, workload: Workload, search: Sequence[Axis]
) -> Mapping[Axis, Prior]:
    """Return the ranges of the searched axes that the candidate has. `workload` has the candidate's own warm-up."""
    by_axis = {axis: _prior(optimizer, options, own_rate, workload, axis) for axis in AXES if axis in search}
    return {axis: prior for axis, prior in by_axis.items() if prior is not None}


def own_setting(ranges: Mapping[Axis, Prior]) -> Setting:
    """Return the candidate's own setting, which every search tries first."""
    return {FIELDS[axis]: prior.own for axis, prior in ranges.items()}


def searched_values(run: RunSpec, search: Collection[Axis]) -> dict[str, Scalar]:
    """Return the searched fields, as the run has them."""
    values = run.optimizer.options | {
        "lr": run.optimizer.lr,
        "warmup_steps": run.workload.schedule.warmup_steps,
        "clip_grad_norm": run.workload.clip_grad_norm,
    }
    return {field: values[field] for axis in AXES if axis in search and (field := FIELDS[axis]) in values}


def axes_in_words(axes: Iterable[Axis]) -> str:
    """Return `lr, beta2, weight decay`."""
    return ", ".join(WORDS.get(axis, axis) for axis in axes)


def _prior(
    optimizer: str, options: Mapping[str, Scalar], own_rate: float, workload: Workload, axis: Axis
) -> Prior | None:
    if axis == "lr":
        return Prior(own=own_rate, low=own_rate / RATE_FACTOR, high=own_rate * RATE_FACTOR)
    if axis == "warmup":
        steps, warmup_steps = workload.budget.steps, workload.schedule.warmup_steps
        if steps < 2:
            return None
        longest = max(warmup_steps, steps // 2)
        low, high = (
            (warmup_steps / OPTION_FACTOR, warmup_steps * OPTION_FACTOR)
            if warmup_steps
            else (share * steps for share in WARMUP_SHARES)
        )
        return Prior(own=warmup_steps, low=max(1.0, low), high=float(min(max(1.0, high), longest)))
    if axis == "clip":
        middle = workload.clip_grad_norm or USUAL_CLIP
        return Prior(own=workload.clip_grad_norm, low=middle / OPTION_FACTOR, high=middle * OPTION_FACTOR)
    entry = catalog.find(optimizer)
    option = entry.option(axis) if entry else None
    if option is None:
        return None
    value = options.get(axis, option.default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    if axis in ("beta1", "beta2"):
        slack = 1 - value
        return Prior(own=value, low=slack / OPTION_FACTOR, high=min(slack * OPTION_FACTOR, WIDEST_SLACK))
    highest = value * OPTION_FACTOR
    return Prior(own=value, low=value / OPTION_FACTOR, high=min(highest, option.maximum or highest))


def value_at(axis: Axis, prior: Prior, share: float) -> float | int:
    """Return the value at a share of the range, from its lower end to its upper one."""
    value = exp(log(prior.low) + share * (log(prior.high) - log(prior.low)))
    if axis == "warmup":
        return round(value)
    return round(1 - _round_to_digits(value), 12) if axis in ("beta1", "beta2") else _round_to_digits(value)


def _round_to_digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
