"""Statistics over seeds, as pure functions on arrays: t-intervals, and the quantiles that they need.

Input that supports no figure gives None, never NaN: an empty or non-finite sample has no mean, one value has no
interval. The t-distribution is `scipy.special`'s; `scipy.stats`, which wraps it, takes far longer to import and is what
the tests compare with.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.analysis import scipy_parts as sp
from orchestrator.analysis.sequential import Array, Look
from orchestrator.records import SIGNIFICANCE, Interval

CONFIDENCE = 1 - SIGNIFICANCE
FLOAT32 = 2.0**-23
"""Relative spacing of the numbers that losses are computed in."""


def t_quantile(degrees: float, probability: float) -> float:
    """Return the quantile of Student's t at that probability."""
    return float(sp.special.stdtrit(degrees, probability))


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal at that probability."""
    return float(sp.special.ndtri(probability))


def mean_interval(values: Sequence[float], looks: Mapping[int, Look] | None = None) -> Interval | None:
    """Return the mean of independent values with its 95 % t-interval: mean ± t_{n-1, 0.975} · s / sqrt(n).

    With `looks` the intervals of all numbers of values that have one hold together. None for an empty or non-finite
    sample; without bounds where n = 1, the values do not differ, or n has no look.
    """
    sample = finite_sample(values)
    if sample is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.mean(sample))
        spread = float(np.std(sample, ddof=1)) if sample.size > 1 else 0.0
    if not np.isfinite(mean):
        return None
    look = None if looks is None else looks.get(sample.size)
    level = SIGNIFICANCE if looks is None else look.level if look else None
    if level is None or not np.isfinite(spread) or spread <= FLOAT32 * FLOAT32 * float(np.abs(sample).max()):
        return Interval(mean=mean, low=None, high=None, n=sample.size)
    half = t_quantile(sample.size - 1, 1 - level / 2) * spread / float(np.sqrt(sample.size))
    low, high = mean - half, mean + half
    bounded = bool(np.isfinite(low) and np.isfinite(high))
    return Interval(mean=mean, low=low if bounded else None, high=high if bounded else None, n=sample.size)


def resolution(values: Sequence[float]) -> float:
    """Return the step of recorded numbers: that of their last decimal where all of them have six or fewer, else that of
    float32 at their size."""
    largest = max(map(abs, values), default=0.0)
    for digits in range(1, 7):
        if all(round(value, digits) == value for value in values):
            return float(max(10.0**-digits, FLOAT32 * largest))
    return FLOAT32 * largest


def median(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that exist; None if none does."""
    sample = finite_sample([value for value in values if value is not None])
    return None if sample is None else float(np.median(sample))


def finite_sample(values: Sequence[float]) -> Array | None:
    """Return the values as an array; None if there are none, or one is not finite."""
    sample = np.asarray(values, dtype=np.float64)
    return sample if sample.size and bool(np.isfinite(sample).all()) else None
