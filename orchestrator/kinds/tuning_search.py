"""What tuning searches: the axes, the priors of each candidate, and the trials that a random search draws. Pure.

    a share of (0, 1) for each trial and axis, from the first tuning seed ─► the candidate's own prior at that share
                                                                          └► trial 1: its own setting, undrawn

All candidates get the same shares: where two of them have the same defaults they try the same settings, and the luck of
the draws is the same for both. What each prior reaches, as a factor to either side of what the candidate has without a
search (its option, or the catalog's default; the workload's warm-up and clipping), is a table below. Coordinate descent
(`coordinate_descent.py`) walks through the same priors.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, log
from random import Random
from types import MappingProxyType
from typing import Literal

from optim import catalog
from optim.catalog import Scalar
from orchestrator.kinds.search_spaces import RATE_FACTOR
from worker.spec.run import Workload

Axis = Literal["lr", "warmup", "beta1", "beta2", "weight_decay", "clip"]
AXES: tuple[Axis, ...] = ("lr", "warmup", "beta1", "beta2", "weight_decay", "clip")
FIELDS: Mapping[Axis, str] = MappingProxyType({axis: axis for axis in AXES}) | {
    "warmup": "warmup_steps",
    "clip": "clip_grad_norm",
}
"""What specifications and tables call the value of an axis."""
WORDS: Mapping[Axis, str] = MappingProxyType({"warmup": "warm-up", "weight_decay": "weight decay"})
Setting = Mapping[str, Scalar]
"""The value of each field of one trial."""

FACTORS: Mapping[Axis, float] = MappingProxyType(
    {"lr": RATE_FACTOR, "warmup": 4.0, "beta1": 4.0, "beta2": 4.0, "weight_decay": 10.0, "clip": 4.0}
)
"""How far a prior reaches to either side; of a beta, which averages over 1 / (1 - beta) steps, in 1 - beta."""
WIDEST_SLACK = 0.9
"""No beta below 0.1 is tried: it would be no average."""
WARMUP_SHARES = (0.01, 0.2)
"""Of all steps, where there is no warm-up to begin with."""
USUAL_CLIP = 1.0
"""The middle of the prior where gradients are not clipped (AdaPM's paper, section 5.1)."""
DIGITS = 4
"""Drawn values are rounded to so many digits."""
SHARES = 1000
"""Rates are drawn at so many places of their prior, each once: a trial is known by its rate."""
HALVES_PER_COMPARISON = 3
"""Draws that have fewer halves for each comparison tell nothing of their luck at the level of all together. Where
losses have kinks and all but the baseline are five times as sensitive, 4 to 6 % of experiments with 4 trials and three
comparisons were wrong, 9 to 11 % with 4 and nine, 4 to 7 % with 6 and nine; with this bound 0 to 3 %
(`python -m benchmarks.searched_verdicts --few`, and the same worlds with these numbers)."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is searched of one axis, uniformly in the logarithm."""

    own: Scalar
    """What the candidate has without a search; it may be no warm-up or no clipping, off the scale."""
    low: float
    high: float
    """Of a beta, as 1 - beta."""


def least_draws(comparisons: int) -> int:
    """The fewest trials of a random search that so many comparisons can rest on."""
    return next(count for count in itertools.count(2) if comb(count, count // 2) >= HALVES_PER_COMPARISON * comparisons)


def trials(known: Mapping[Axis, Prior], count: int, seed: int) -> tuple[Setting, ...]:
    """The settings that a candidate with these priors tries, the first being its own."""
    shares = {axis: _shares(axis, count - 1, seed) for axis in known}
    own: Setting = {FIELDS[axis]: prior.own for axis, prior in known.items()}
    return (
        own,
        *(
            {FIELDS[axis]: value_at(axis, prior, shares[axis][place]) for axis, prior in known.items()}
            for place in range(count - 1)
        ),
    )


def priors(
    optimizer: str, options: Mapping[str, Scalar], rates: Sequence[float], workload: Workload, search: Sequence[Axis]
) -> Mapping[Axis, Prior]:
    """Of the searched axes that the candidate has. `workload` has the candidate's own warm-up."""
    found = {axis: _prior(optimizer, options, rates, workload, axis) for axis in AXES if axis in search}
    return {axis: prior for axis, prior in found.items() if prior is not None}


def axes_in_words(axes: Iterable[Axis]) -> str:
    """`lr, beta2, weight decay`."""
    return ", ".join(WORDS.get(axis, axis) for axis in axes)


def _shares(axis: Axis, count: int, seed: int) -> Sequence[float]:
    """Those of one axis, whatever other axes are searched: the first n of more trials are those of n trials."""
    random, taken = Random(f"{seed} {axis}"), dict[int, None]()  # noqa: S311 - a search, not a secret
    while len(taken) < count:
        taken[random.randrange(SHARES)] = None
    return [(place + 0.5) / SHARES for place in taken]


def _prior(
    optimizer: str, options: Mapping[str, Scalar], rates: Sequence[float], workload: Workload, axis: Axis
) -> Prior | None:
    factor = FACTORS[axis]
    if axis == "lr":
        if len(rates) > 1:
            low, high = min(rates), max(rates)
            return Prior(own=_round_to_digits((low * high) ** 0.5), low=low, high=high)
        return Prior(own=rates[0], low=rates[0] / factor, high=rates[0] * factor)
    if axis == "warmup":
        steps, own = workload.budget.steps, workload.schedule.warmup_steps
        if steps < 2:
            return None
        longest = max(own, steps // 2)
        low, high = (own / factor, own * factor) if own else (share * steps for share in WARMUP_SHARES)
        return Prior(own=own, low=max(1.0, low), high=float(min(max(1.0, high), longest)))
    if axis == "clip":
        middle = workload.clip_grad_norm or USUAL_CLIP
        return Prior(own=workload.clip_grad_norm, low=middle / factor, high=middle * factor)
    entry = catalog.find(optimizer)
    option = entry.option(axis) if entry else None
    if option is None:
        return None
    value = options.get(axis, option.default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    if axis in ("beta1", "beta2"):
        return Prior(own=value, low=(1 - value) / factor, high=min((1 - value) * factor, WIDEST_SLACK))
    return Prior(own=value, low=value / factor, high=min(value * factor, option.maximum or value * factor))


def value_at(axis: Axis, prior: Prior, share: float) -> float | int:
    """The value at a share of the prior, from its lower end to its upper one."""
    value = exp(log(prior.low) + share * (log(prior.high) - log(prior.low)))
    if axis == "warmup":
        return round(value)
    return round(1 - _round_to_digits(value), 12) if axis in ("beta1", "beta2") else _round_to_digits(value)


def _round_to_digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
