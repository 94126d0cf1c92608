"""The power of the paired t-test: the differences that a comparison will show.

    earlier judged runs of a workload ─► standard deviation of paired differences ─► with n seeds the least difference
        that is shown with 80 %; the least n that shows a difference as large as the margin, or one of none within it

Of n pairs with the standard deviation s the interval has the half width h(s) of `estimator.half_width`. The mean is
normal, and (n - 1) s² / σ² is chi-square, independent of it: a chance is that of the normal, averaged over s. Without
an error of the validation text this is the noncentral t.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from statistics import fmean

import numpy as np

from orchestrator.analysis import scipy_parts as sp
from orchestrator.analysis.sequential import Array
from orchestrator.records import SIGNIFICANCE

POWER = 0.8
"""The usual share of experiments in which a true difference should be shown (J. Cohen 1988)."""
MOST_ADVISED_SEEDS = 1000
"""More seeds than that are no advice."""
NODES = 32
"""Quantiles of the observed spread that a chance is averaged over: 3e-4 from the noncentral t at worst."""


def chance_shown(difference: float, n: int, sd: float, level: float, evaluation_error: float = 0.0) -> float:
    """Return the probability that n pairs show a true difference of this size as one of its sign, at a two-sided
    level."""
    if n < 2:
        return 0.0
    error = math.hypot(sd / math.sqrt(n), evaluation_error)
    if error == 0:
        return float(difference > 0)
    half, weights = _half_widths(level / 2, n, sd, evaluation_error)
    return float(weights @ sp.special.ndtr((difference - half) / error))


def chance_within(
    margin: float, n: int, sd: float, level: float, evaluation_error: float = 0.0, difference: float = 0.0
) -> float:
    """Return the probability that n pairs show a true difference to lie within the margin by two one-sided tests at
    `level`."""
    if n < 2:
        return 0.0
    error = math.hypot(sd / math.sqrt(n), evaluation_error)
    if error == 0:
        return float(abs(difference) < margin)
    half, weights = _half_widths(level, n, sd, evaluation_error)
    room = np.maximum(margin - half, 0.0)
    return float(
        weights @ (sp.special.ndtr((room - difference) / error) - sp.special.ndtr((-room - difference) / error))
    )


def _half_widths(tail: float, n: int, sd: float, evaluation_error: float) -> tuple[Array, Array]:
    """Return half the width of the interval with this probability in each tail, at quantiles of the observed standard
    deviation, and the weights of these."""
    nodes, weights = _nodes()
    observed = sd * np.sqrt(sp.special.chdtri(n - 1, (1 - nodes) / 2) / (n - 1))
    half = np.hypot(
        sp.special.stdtrit(n - 1, 1 - tail) * observed / math.sqrt(n), sp.special.ndtri(1 - tail) * evaluation_error
    )
    return half, weights / 2


@cache
def _nodes() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(NODES)


def least_seeds(chance: Callable[[int], float]) -> int | None:
    """Return the least number of seeds, two or more, with which the chance of a verdict is `POWER`; None above a
    thousand. The chance grows with the seeds."""
    seeds = range(2, MOST_ADVISED_SEEDS + 1)
    return None if chance(MOST_ADVISED_SEEDS) < POWER else seeds[bisect_left(seeds, POWER, key=chance)]


def least_difference(n: int, sd: float, level: float, evaluation_error: float = 0.0) -> float | None:
    """Return the least true difference that n pairs show with the chance `POWER`, in the unit of the loss; None below
    two."""
    if n < 2 or (error := math.hypot(sd / math.sqrt(n), evaluation_error)) == 0:
        return None
    low, high = 0.0, error
    while chance_shown(high, n, sd, level, evaluation_error) < POWER:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_shown(middle, n, sd, level, evaluation_error) < POWER else (low, middle)
    return high


def seeds_to_decide(
    difference: float, sd: float, level: float, evaluation_error: float, margin: float | None
) -> int | None:
    """Return the pairs that decide a difference of this size and noise, either way, with the chance `POWER`; None if
    a thousand would not."""
    seeds_shown = least_seeds(lambda n: chance_shown(difference, n, sd, level, evaluation_error))
    seeds_within = (
        least_seeds(lambda n: chance_within(margin, n, sd, level, evaluation_error, difference))
        if margin is not None and difference < margin
        else None
    )
    return min((seeds for seeds in (seeds_shown, seeds_within) if seeds is not None), default=None)


def paired_sd(experiments: Iterable[Sequence[Mapping[int, float]]]) -> tuple[float, int] | None:
    """Return the standard deviation of the difference of two candidates with the same seed, pooled over experiments,
    and from how many; None if none has two candidates with two seeds in common.

    Args:
        experiments: Of each one, for every candidate its losses by seed.
    """
    variances: list[float] = []
    count = 0
    for candidates in experiments:
        pair_variances = []
        for losses, other_losses in combinations(candidates, 2):
            differences = [losses[seed] - other_losses[seed] for seed in sorted(losses.keys() & other_losses.keys())]
            if len(differences) > 1 and any(differences):
                mean = fmean(differences)
                pair_variances.append(
                    sum((difference - mean) ** 2 for difference in differences) / (len(differences) - 1)
                )
        if pair_variances:
            variances.append(fmean(pair_variances))
            count += 1
    return (math.sqrt(fmean(variances)), count) if variances else None


def level_of(comparisons: int) -> float:
    """Return the two-sided level of each of so many comparisons."""
    return SIGNIFICANCE / max(comparisons, 1)
