"""Statistics over seeds, as pure functions on arrays: t-intervals, and paired differences that hold together.

Differences of several candidates to one baseline are a family, and what is said of it comes from one procedure, the
paired t-test at Bonferroni's level: of k comparisons each interval has the confidence 1 - 0.05 / k and each p-value is
multiplied by k. An interval holds what tuning left open besides, at its own level, and the p-value is the level of the
one that ends at zero: so an interval leaves zero out exactly where its p-value is below 0.05, and with 95 % all k
intervals hold at once (O. J. Dunn, "Multiple comparisons among means",
JASA 56, 1961). That is right for any dependence of the candidates, unequal variances and unequal numbers of pairs.
What else there is, and why not:

    Holm's step-down       decides a little more, and has no intervals of its own: beside uncorrected ones it printed
                           "no difference" next to an interval without zero
    Dunnett's, or max-t    of the normal: one variance for all candidates; optimizers do not have one
    max-t by sign flips    with n seeds no p-value is below 2 / 2^n: at 5 seeds nothing could be decided

The price in power, against Holm, where every candidate is truly better by 2.5 standard deviations of its differences
(5 seeds; share of differences that are shown): 0.93 for 0.97 with 2 comparisons, 0.81 for 0.94 with 4; none with 1.

Input that supports no figure gives None, never NaN: an empty or non-finite sample has no mean, one value or values
without spread have no interval and no p-value. The t-distribution is `scipy.special`'s; `scipy.stats`, which wraps it,
takes far longer to import and is what the tests compare with.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestrator.analysis.sequential import Array, Look
from orchestrator.records import SIGNIFICANCE, Difference, Interval

# Student's t, chi-square and the normal distribution: `scipy.special`, loaded when the first interval is asked for.
#
# Its import takes a fifth of a second, and of the api's requests only tables, comparisons and fits need it.


def t_below(degrees: float, value: float) -> float:
    """P(t ≤ value) for Student's t with so many degrees of freedom."""
    from scipy.special import stdtr  # a fifth of a second, of which most requests need nothing

    return float(stdtr(degrees, value))


def t_quantile(degrees: float, probability: float) -> float:
    """The value that Student's t is below with that probability."""
    from scipy.special import stdtrit  # as above

    return float(stdtrit(degrees, probability))


def chi_square_quantile(degrees: float, probability: float) -> float:
    """The value that chi-square is below with that probability."""
    from scipy.special import chdtri  # as above

    return float(chdtri(degrees, 1 - probability))


def normal_quantile(probability: float) -> float:
    """The value that a standard normal is below with that probability."""
    from scipy.special import ndtri  # as above

    return float(ndtri(probability))


def normal_below(value: float) -> float:
    """P(z ≤ value) for a standard normal."""
    from scipy.special import ndtr  # as above

    return float(ndtr(value))


Reach = Callable[[float], tuple[float, float]]
"""By the level of an interval: how far it goes on below and above for what the data do not tell."""
SMALLEST_P = 1e-300
"""Where a search for a p-value begins that would be zero."""
ROUNDING_OF_LEVELS = 1e-6
"""By such a share a level that is searched for may be off."""
CONFIDENCE = 1 - SIGNIFICANCE
ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Spread below this fraction of the values is rounding, not a measurement."""


def mean_interval(
    values: Sequence[float], comparisons: int = 1, looks: Mapping[int, Look] | None = None
) -> Interval | None:
    """Mean of independent values with its 95 % t-interval: mean ± t_{n-1, 0.975} · s / sqrt(n).

    With `comparisons` = k such intervals at once hold together with 95 %, and with `looks` those of all numbers of
    values that have one. None for an empty or non-finite sample; without bounds where n = 1, the values do not differ,
    or n has no look.
    """
    sample = _finite(values)
    if sample is None:
        return None
    scale = float(np.max(np.abs(sample)))
    found = _mean_and_error(sample, scale)
    if found is None:
        return None
    mean, error = found
    low, high = None, None
    if looks is None:
        low, high = _bounds(mean, error, sample.size - 1, SIGNIFICANCE / comparisons)
    elif sample.size in looks:
        low, high = _bounds(mean, error, sample.size - 1, looks[sample.size].level)
    return Interval(mean=mean, low=low, high=high, n=sample.size)


def widen(found: Interval | Difference, tests: int) -> Interval:
    """A t-interval as one of `tests` times as many that hold together with 95 %. What else is in it grows along: what a
    grid left open by rather too much, what a search did by too little where few draws have far tails (simulated for
    two tests after a descent of six axes: by a tenth at most)."""
    if tests == 1 or (found.low is None and found.high is None):
        return Interval(mean=found.mean, low=found.low, high=found.high, n=found.n)
    growth = quantile_growth(found.n, found.comparisons if isinstance(found, Difference) else 1, tests)
    low, high = (
        None if edge is None else found.mean + growth * (edge - found.mean) for edge in (found.low, found.high)
    )
    return Interval(mean=found.mean, low=low, high=high, n=found.n)


def quantile_growth(n: int, comparisons: int, tests: int) -> float:
    """By what factor each half of a t-interval of n values, one of so many, grows as one of `tests` times as many."""
    level = SIGNIFICANCE / comparisons / 2
    return t_quantile(n - 1, level / tests) / t_quantile(n - 1, level)


def paired_difference(
    values: Sequence[float],
    baseline: Sequence[float],
    comparisons: int = 1,
    regrets: Callable[[float], Reach] | None = None,
    shared_error: float = 0.0,
    looks: Mapping[int, Look] | None = None,
    least_level: float = 0.0,
) -> Difference | None:
    """Mean of `values - baseline`, pair by pair, with interval and p-value of the paired t-test among `comparisons`.

    `regrets`: from the variance of the differences, how much lower each of the two, values and baseline, might have
    been at a better rate than its own. The true difference may lie so much below and above, and the interval covers it.
    `shared_error`: the standard error that all pairs have in common, and no number of them reduces.
    `looks`: of a sequential comparison, by the number of pairs; without bounds and p-value where that has none.
    `least_level`: the smallest one at which the regrets are known; the p-value is no smaller, times `comparisons`.

    The p-value is two-sided, for the hypothesis that the mean difference is zero. None for no or non-finite pairs;
    raises `ValueError` for lengths that differ. Without bounds and p-value where n = 1 or the differences are equal.
    The number of comparisons is that of the specification, tested or not: a verdict does not hang on what became of
    others.
    """
    if len(values) != len(baseline):
        raise ValueError(f"pairs need equal lengths, got {len(values)} and {len(baseline)}; pair them by seed first")
    left, right = _finite(values), _finite(baseline)
    if left is None or right is None:
        return None
    # The rounding error of a difference is set by the size of its terms, not by its own.
    scale = float(max(np.max(np.abs(left)), np.max(np.abs(right))))
    with np.errstate(over="ignore"):
        differences = left - right
    found = _mean_and_error(differences, scale)
    if found is None:
        return None
    mean, error = found
    look = None if looks is None else looks.get(left.size)
    low, high, p_value = t_test(
        mean,
        None if looks is not None and look is None else error,
        left.size - 1,
        comparisons,
        reach=nothing_beyond if regrets is None or error is None else regrets(error**2 * left.size),
        shared_error=shared_error,
        look=look,
        least_level=least_level,
    )
    return Difference(
        mean=mean,
        low=low,
        high=high,
        n=left.size,
        p_value=p_value,
        comparisons=comparisons,
        evaluation_error=shared_error,
    )


def nothing_beyond(_level: float) -> tuple[float, float]:
    """The reach of an interval of what the data tell alone."""
    return 0.0, 0.0


def t_test(
    estimate: float,
    error: float | None,
    degrees: int,
    comparisons: int = 1,
    *,
    reach: Reach = nothing_beyond,
    shared_error: float = 0.0,
    look: Look | None = None,
    least_level: float = 0.0,
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Low, high and two-sided p-value of an estimate with this standard error, one of so many `comparisons`. The
    p-value is the level of the interval that ends at zero, so that the interval leaves zero out exactly where p < 0.05.
    By its `reach` the truth may lie below and above what is estimated. A `shared_error` that is known, and normal,
    joins in squares: half of the interval is the root of the sum of the squares of what either would have alone (G. Y.
    Zou and A. Donner, Stat. Med. 27, 2008). At a `look` the interval has that look's level, and the p-value is the
    share of its level that the data use up: at most 0.05 / k of it is spent by all looks, and a smaller share by no
    more than the sum of their levels. Below its `least_level` the reach is not known, nor is a smaller p-value. None of
    them without an error, or where a bound is not finite."""
    if error is None:
        return None, None, None

    def interval(level: float) -> tuple[float, float]:
        width = math.hypot(t_quantile(degrees, level / 2) * error, normal_quantile(level / 2) * shared_error)
        below, above = reach(level)
        return estimate - width - below, estimate + width + above

    low, high = interval(look.level if look else SIGNIFICANCE / comparisons)
    if not (np.isfinite(low) and np.isfinite(high)):
        return None, None, None
    p_value = _level_that_ends_at_zero(interval, estimate, error, degrees)
    if look is not None:
        used = p_value / look.level
        p_value = used * (
            SIGNIFICANCE / comparisons if used >= 1 else min(look.all_levels, SIGNIFICANCE / comparisons / used)
        )
    p_value = min(1.0, comparisons * max(p_value, least_level))
    # The quantile and the probability are rounded each for itself: at the very edge the interval decides.
    if low > 0 or high < 0:
        return low, high, min(p_value, float(np.nextafter(SIGNIFICANCE, 0)))
    return low, high, max(p_value, SIGNIFICANCE)


def _level_that_ends_at_zero(
    interval: Callable[[float], tuple[float, float]], estimate: float, error: float, degrees: int
) -> float:
    """To a millionth of itself; 1 where even the narrowest interval holds zero."""

    def holds_zero(level: float) -> bool:
        low, high = interval(level)
        return low <= 0 <= high

    least = max(2 * t_below(degrees, -abs(estimate) / error), SMALLEST_P)  # that of the estimate's own error alone
    if least >= 1 or not holds_zero(min(least * (1 + ROUNDING_OF_LEVELS), 1.0)):
        return min(least, 1.0)
    low, high = math.log(least), 0.0
    while high - low > ROUNDING_OF_LEVELS:
        middle = (low + high) / 2
        low, high = (middle, high) if holds_zero(math.exp(middle)) else (low, middle)
    return math.exp(high)


def median(values: Sequence[float | None]) -> float | None:
    """The median of the values that exist; None where none does."""
    sample = _finite([value for value in values if value is not None])
    return None if sample is None else float(np.median(sample))


def _finite(values: Sequence[float]) -> Array | None:
    sample = np.asarray(values, dtype=np.float64)
    return sample if sample.size and bool(np.isfinite(sample).all()) else None


def _mean_and_error(sample: Array, scale: float) -> tuple[float, float | None] | None:
    """Mean and standard error; no error where there is no spread, nothing at all where the sums overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.mean(sample))
        spread = float(np.std(sample, ddof=1)) if sample.size > 1 else 0.0
    if not np.isfinite(mean):
        return None
    if not np.isfinite(spread) or spread <= ROUNDING * scale:
        return mean, None
    return mean, spread / float(np.sqrt(sample.size))


def _bounds(mean: float, error: float | None, degrees: int, level: float) -> tuple[float | None, float | None]:
    if error is None:
        return None, None
    half = t_quantile(degrees, 1 - level / 2) * error
    low, high = mean - half, mean + half
    return (low, high) if np.isfinite(low) and np.isfinite(high) else (None, None)
