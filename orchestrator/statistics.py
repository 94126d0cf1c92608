"""Statistics over seeds, as pure functions on arrays: t-intervals, paired differences, Holm's correction.

Input that supports no figure gives None, never NaN: an empty or non-finite sample has no mean, one value or values
without spread have no interval and no p-value. The t-distribution is `scipy.special`'s (`distributions.py`);
`scipy.stats`, which wraps it, takes ten times as long to import and is what the tests compare with.
"""

from collections.abc import Sequence

import numpy as np

from orchestrator.distributions import t_below, t_quantile
from orchestrator.records import Difference, Interval

CONFIDENCE = 0.95
ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Spread below this fraction of the values is rounding, not a measurement."""

Array = np.ndarray[tuple[int], np.dtype[np.float64]]


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean of independent values with its 95 % t-interval: mean ± t_{n-1, 0.975} · s / sqrt(n).

    None for an empty or non-finite sample; without bounds where n = 1 or the values do not differ.
    """
    sample = _finite(values)
    if sample is None:
        return None
    scale = float(np.max(np.abs(sample)))
    found = _mean_and_error(sample, scale)
    if found is None:
        return None
    mean, error = found
    low, high = _bounds(mean, error, sample.size)
    return Interval(mean=mean, low=low, high=high, n=sample.size)


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference | None:
    """Mean of `values - baseline`, pair by pair, with its 95 % t-interval and the p-value of the paired t-test.

    The p-value is two-sided, for the hypothesis that the mean difference is zero. None for no or non-finite pairs;
    raises `ValueError` for lengths that differ. Without bounds and p-value where n = 1 or the differences are equal.
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
    low, high = _bounds(mean, error, left.size)
    p_value = None if error is None else 2 * t_below(left.size - 1, -abs(mean / error))
    return Difference(mean=mean, low=low, high=high, n=left.size, p_value=p_value, p_value_holm=None)


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Holm's step-down correction: the i-th smallest of m becomes the largest of (m - j) p_j for j <= i, at most 1.

    None stays None and is not counted: a test that could not be made is no test. S. Holm, "A simple sequentially
    rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
    """
    tested = sorted((value, position) for position, value in enumerate(p_values) if value is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, position) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * value))
        corrected[position] = largest
    return tuple(corrected)


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


def _bounds(mean: float, error: float | None, n: int) -> tuple[float | None, float | None]:
    if error is None:
        return None, None
    half = t_quantile(n - 1, (1 + CONFIDENCE) / 2) * error
    low, high = mean - half, mean + half
    return (low, high) if np.isfinite(low) and np.isfinite(high) else (None, None)
