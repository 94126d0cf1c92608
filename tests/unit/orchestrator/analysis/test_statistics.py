"""Statistics agree with scipy.stats, and give None instead of NaN."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.statistics import mean_interval, median, paired_difference, t_test
from tests.twins import statistics as reference

losses = st.lists(st.floats(0.5, 10), min_size=2, max_size=12)
any_float = st.floats() | st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324])


def spread(values: list[float]) -> float:
    return float(np.ptp(values))


@given(losses)
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    assume(spread(values) > 1e-6)
    found = mean_interval(values)
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx(reference.mean_interval(values))
    assert found.n == len(values)


@given(st.lists(st.tuples(st.floats(0.5, 10), st.floats(0.5, 10)), min_size=2, max_size=12))
def test_a_paired_difference_is_scipys(pairs: list[tuple[float, float]]) -> None:
    values, baseline = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    assume(spread([left - right for left, right in pairs]) > 1e-6)
    found = paired_difference(values, baseline)
    assert found is not None
    assert (found.mean, found.low, found.high, found.p_value) == pytest.approx(
        reference.paired_difference(values, baseline), abs=1e-9
    )


@given(
    st.floats(-3, 3),
    st.floats(0.01, 2),
    st.integers(1, 30),
    st.integers(1, 10),
    st.floats(0, 2),
    st.floats(0, 1),
    st.floats(0, 1),
)
@example(1e-9, 1.0, 4, 1, 0.0, 0.0, 0.0)
def test_interval_and_p_value_are_one_whatever_an_interval_reaches_for(
    mean: float, error: float, degrees: int, comparisons: int, shared: float, below: float, unsure: float
) -> None:
    """An error that pairs share, and what tuning left open, which counts for the more the surer the interval is."""

    def reach(level: float) -> tuple[float, float]:
        assert 0 < level <= 1
        return below + unsure * stats.norm.isf(level / 2), below

    low, high, p_value = t_test(mean, error, degrees, comparisons, reach=reach, shared_error=shared)
    assert low is not None and high is not None and p_value is not None
    assert (low > 0 or high < 0) == (p_value < 0.05)
    alone, _, sure = t_test(mean, error, degrees, comparisons, reach=lambda _level: (below, below))
    assert alone is not None and sure is not None
    assert low <= alone + 1e-12 and p_value >= sure * (1 - 1e-5)
    if 1e-6 < p_value < 1 and abs(mean) > below:
        level = p_value / comparisons
        half = math.hypot(stats.t.isf(level / 2, degrees) * error, stats.norm.isf(level / 2) * shared)
        ends = mean - half - reach(level)[0], mean + half + below
        assert min(map(abs, ends)) < 1e-4 * (1 + half), "the level whose interval ends at zero"


def test_a_p_value_is_no_smaller_than_what_is_known_of_the_reach() -> None:
    """A search of few draws, or a rate that is kept, says how far the truth may lie at few levels alone."""

    def p_value(least_level: float, comparisons: int = 1) -> float:
        low, _, found = t_test(0.1, 0.001, 9, comparisons, reach=lambda _level: (0.02, 0.02), least_level=least_level)
        assert low is not None and found is not None and low > 0
        return found

    assert p_value(0.0) < 1e-9
    assert p_value(0.001) == 0.001
    assert p_value(0.001, 9) == pytest.approx(0.009)
    assert 0.0499 < p_value(0.05) < 0.05, "the interval decides at the edge"


@pytest.mark.parametrize("shared", [0.002, 0.005, 0.02])
def test_intervals_hold_the_difference_on_all_text_where_the_evaluated_text_is_one_draw(shared: float) -> None:
    """4,000 experiments of five seeds with a spread of 0.005; without the shared error 5 to 80 % would miss."""
    random = np.random.default_rng(5)
    held = 0
    for _ in range(4000):
        seen = random.normal(0, shared) + random.normal(0, 0.005, 5)
        found = paired_difference(seen.tolist(), [0.0] * 5, shared_error=shared)
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 0 <= found.high
    assert 0.94 <= held / 4000 <= 0.985


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf], [1.0, math.nan, 2.0], [1.7e308, 1.7e308]])
def test_what_has_no_mean_is_none(values: list[float]) -> None:
    assert mean_interval(values) is None
    assert paired_difference(values, [0.0] * len(values)) is None


def test_one_value_has_a_mean_and_no_interval() -> None:
    found = mean_interval([2.5])
    assert found is not None
    assert (found.mean, found.low, found.high, found.n, found.half_width()) == (2.5, None, None, 1, None)


@pytest.mark.parametrize("values", [[2.0, 2.0], [0.1] * 7, [0.0, 0.0]])
def test_equal_values_have_no_interval(values: list[float]) -> None:
    found = mean_interval(values)
    assert found is not None
    assert (found.low, found.high) == (None, None)


def test_differences_that_are_equal_up_to_rounding_have_no_p_value() -> None:
    """2.1 - 2.0 and 3.1 - 3.0 differ in the last bits only: that is no evidence of anything."""
    found = paired_difference([2.1, 3.1, 4.1], [2.0, 3.0, 4.0])
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high, found.p_value) == (None, None, None)


def test_pairs_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 and 1; pair them by seed"):
        paired_difference([1.0, 2.0], [1.0])


@given(st.lists(any_float, max_size=6), st.lists(any_float, max_size=6))
def test_no_input_gives_nan(values: list[float], others: list[float]) -> None:
    """Every float, infinite, huge or denormal: the records are valid JSON."""
    size = min(len(values), len(others))
    for record in (mean_interval(values), paired_difference(values[:size], others[:size])):
        if record is not None:
            json.dumps(record.model_dump(), allow_nan=False)


def test_the_median_ignores_what_is_missing() -> None:
    assert median([3.0, None, 1.0, 2.0]) == 2.0
    assert median([None]) is None
