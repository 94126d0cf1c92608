"""Statistics in the slow, readable way: scipy.stats and textbook loops, to hold the fast ones against."""

from collections.abc import Sequence

import numpy as np
from scipy import stats


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, low and high of the 95 % t-interval."""
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    return float(np.mean(values)), float(low), float(high)


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean, low, high and p-value of the paired t-test."""
    test = stats.ttest_rel(values, baseline)
    interval = test.confidence_interval(0.95)
    return float(np.mean(np.subtract(values, baseline))), float(interval.low), float(interval.high), float(test.pvalue)
