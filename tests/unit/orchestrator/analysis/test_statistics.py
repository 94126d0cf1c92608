"""Statistics agree with scipy.stats, and give None instead of NaN; those of pairs are `test_estimator.py`'s."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.statistics import (
    FLOAT32,
    mean_interval,
    median,
    normal_quantile,
    resolution,
    t_quantile,
)

any_float = st.floats() | st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324])


@given(st.lists(st.floats(0.5, 10), min_size=2, max_size=12))
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    assume(np.ptp(values) > 1e-6)
    interval = mean_interval(values)
    assert interval is not None
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (interval.mean, interval.low, interval.high) == pytest.approx((np.mean(values), *expected))
    assert interval.n == len(values)


@given(st.integers(1, 60), st.floats(1e-6, 1 - 1e-6))
def test_quantiles_are_scipys(degrees: int, probability: float) -> None:
    assert t_quantile(degrees, probability) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-6, abs=1e-12)
    assert normal_quantile(probability) == pytest.approx(stats.norm.ppf(probability), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf], [1.0, math.nan, 2.0], [1.7e308, 1.7e308]])
def test_what_has_no_mean_is_none(values: list[float]) -> None:
    assert mean_interval(values) is None


def test_one_value_has_a_mean_and_no_interval() -> None:
    interval = mean_interval([2.5])
    assert interval is not None
    assert (interval.mean, interval.low, interval.high, interval.n, interval.half_width()) == (2.5, None, None, 1, None)


@pytest.mark.parametrize("values", [[2.0, 2.0], [0.1] * 7, [0.0, 0.0]])
def test_equal_values_have_no_interval(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval is not None
    assert (interval.low, interval.high) == (None, None)


@given(st.lists(any_float, max_size=6))
def test_no_input_gives_nan(values: list[float]) -> None:
    """Every float, infinite, huge or denormal: the records are valid JSON."""
    if (record := mean_interval(values)) is not None:
        json.dumps(record.model_dump(), allow_nan=False)


@pytest.mark.parametrize(
    ("values", "step"),
    [([3.12, 3.1], 1e-2), ([3.1234, 3.0], 1e-4), ([1 / 3, 3.0], 3 * FLOAT32), ([2.0], 0.1), ([], 0.1)],
)
def test_the_step_of_recorded_numbers_is_their_last_decimal_or_float32s(values: list[float], step: float) -> None:
    assert resolution(values) == pytest.approx(step)


def test_the_median_ignores_what_is_missing() -> None:
    assert median([3.0, None, 1.0, 2.0]) == 2.0
    assert median([None]) is None
