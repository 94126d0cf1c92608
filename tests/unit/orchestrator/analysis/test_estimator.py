"""The one estimator: what it says is what SciPy and statsmodels say, and its interval, p-value and verdict agree."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW, ttost_paired

from orchestrator.analysis.comparison import EVALUATION_ERROR
from orchestrator.analysis.estimator import (
    JudgedRuns,
    clopper_pearson,
    conclude,
    half_width,
    instability,
    paired_difference,
    sign_test,
)
from orchestrator.analysis.sequential import looks
from orchestrator.records import SIGNIFICANCE, Conclusion, Difference

pairs = st.lists(st.tuples(st.floats(0.5, 10), st.floats(0.5, 10)), min_size=2, max_size=12)


def difference(values: list[float], baseline: list[float] | None = None, **given_: float | None) -> Difference:
    """Return the difference of losses by seed; the baseline's are zero by default."""
    estimate = paired_difference(
        dict(enumerate(values)), dict(enumerate(baseline or [0.0] * len(values))),
        comparisons=int(given_.pop("comparisons", 1) or 1), margin=given_.pop("margin", None),
        evaluation_error=given_.pop("evaluation_error", 0.0) or 0.0,
    )  # fmt: skip
    assert estimate is not None and not given_
    return estimate


@given(pairs)
def test_interval_and_p_value_are_those_of_scipys_paired_t_test(losses: list[tuple[float, float]]) -> None:
    candidate, baseline = [pair[0] for pair in losses], [pair[1] for pair in losses]
    assume(np.ptp(np.subtract(candidate, baseline)) > 1e-2)
    test, estimate = stats.ttest_rel(candidate, baseline), difference(candidate, baseline)
    interval = test.confidence_interval(1 - SIGNIFICANCE)
    assert (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert estimate.p_value == pytest.approx(test.pvalue, rel=2e-5)
    assert estimate.mean == pytest.approx(np.mean(np.subtract(candidate, baseline)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("comparisons", [1, 4])
@pytest.mark.parametrize("seeds", [2, 5, 20])
def test_differences_among_several_are_bonferronis(seeds: int, comparisons: int) -> None:
    random = np.random.default_rng(seeds)
    baseline = 3.0 + 0.1 * random.standard_normal(seeds)
    candidates = [baseline + 0.02 * index + 0.02 * random.standard_normal(seeds) for index in range(comparisons)]
    tests = [DescrStatsW(candidate - baseline) for candidate in candidates]
    _, p_values, *_ = multipletests([test.ttest_mean(0.0)[1] for test in tests], method="bonferroni")
    for candidate, test, p_value in zip(candidates, tests, p_values, strict=True):
        estimate = difference(candidate.tolist(), baseline.tolist(), comparisons=comparisons)
        assert (estimate.low, estimate.high) == pytest.approx(test.tconfint_mean(SIGNIFICANCE / comparisons), rel=1e-6)
        assert estimate.p_value == pytest.approx(p_value, rel=1e-5)


@pytest.mark.parametrize("comparisons", [1, 3])
@given(st.floats(-0.03, 0.03), st.integers(2, 20), st.integers(0, 10**6))
def test_as_good_within_a_margin_is_statsmodels_tost(comparisons: int, mean: float, seeds: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    baseline = 3.0 + random.standard_normal(seeds)
    candidate = baseline + mean + 0.01 * random.standard_normal(seeds)
    p_value, *_ = ttost_paired(candidate, baseline, -0.02, 0.02)
    assume(abs(p_value * comparisons - SIGNIFICANCE) > 1e-5)
    estimate = difference(candidate.tolist(), baseline.tolist(), comparisons=comparisons, margin=0.02)
    assert estimate.is_within_margin == (p_value * comparisons < SIGNIFICANCE)


@given(st.floats(-3, 3), st.floats(1e-6, 2), st.integers(2, 30), st.integers(1, 10), st.floats(0, 2))
@example(1e-9, 1.0, 4, 1, 0.0)
def test_interval_p_value_and_margin_cannot_disagree(
    mean: float, sd: float, n: int, comparisons: int, error: float
) -> None:
    shape = np.linspace(-1, 1, n)
    values = mean + sd * shape / shape.std(ddof=1)
    estimate = difference(values.tolist(), comparisons=comparisons, margin=abs(mean) + sd, evaluation_error=error)
    assert (
        estimate.low is not None
        and estimate.high is not None
        and estimate.p_value is not None
        and estimate.sd is not None
    )
    assert estimate.decides() == (estimate.p_value < SIGNIFICANCE)
    by_seeds = stats.t.isf(SIGNIFICANCE / comparisons / 2, n - 1) * estimate.sd / math.sqrt(n)
    by_text = stats.norm.isf(SIGNIFICANCE / comparisons / 2) * error
    assert estimate.high - estimate.mean == pytest.approx(math.hypot(by_seeds, by_text), rel=1e-6)
    if 1e-6 < estimate.p_value < 0.5 and abs(estimate.p_value - SIGNIFICANCE) > 1e-9:
        half = half_width(estimate.p_value / comparisons / 2, n, estimate.sd, error)
        assert half == pytest.approx(abs(estimate.mean), rel=1e-4), "the level whose interval ends at zero"
    half = half_width(SIGNIFICANCE / comparisons, n, estimate.sd, error)
    assert estimate.is_within_margin == (abs(estimate.mean) + half < abs(mean) + sd)
    assert estimate.seeds_to_decide is None or not (estimate.decides() or estimate.is_within_margin)


@pytest.mark.parametrize(("tokens", "alone"), [(4096, 0.345), (65_536, 0.81), (2**20, 0.94)])
def test_intervals_include_the_difference_on_all_text_where_the_evaluated_text_is_one_draw(
    tokens: int, alone: float
) -> None:
    """600 experiments of ten seeds with a spread of 0.005, and how many would do so without the error of the text."""
    random, error = np.random.default_rng(tokens), EVALUATION_ERROR / math.sqrt(tokens)
    included = found_alone = 0
    for _ in range(600):
        differences = (random.normal(0, error) + random.normal(0, 0.005, 10)).tolist()
        low, high = difference(differences, evaluation_error=error).bounds()
        included += low <= 0 <= high
        low, high = difference(differences).bounds()
        found_alone += low <= 0 <= high
    assert included / 600 == pytest.approx(0.955, abs=0.02)
    assert found_alone / 600 == pytest.approx(alone, abs=0.04)


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 10**5), st.integers(-1, 1)), min_size=2, max_size=60))
def test_differences_below_the_step_of_the_record_are_equal(decimals: int, losses: list[tuple[int, int]]) -> None:
    baseline = [round(count * 10.0**-decimals, decimals) for count, _ in losses]
    candidate = [round((count + moved) * 10.0**-decimals, decimals) for count, moved in losses]
    assume(abs(sum(moved for _, moved in losses)) < len(losses))
    assume(any(round(loss, decimals - 1) != loss for loss in (*candidate, *baseline)))
    estimate = difference(candidate, baseline)
    assert not estimate.decides() and estimate.p_value is not None and estimate.p_value > SIGNIFICANCE


@pytest.mark.parametrize("seeds", [2, 10, 60])
def test_a_last_bit_of_float32_on_every_seed_is_no_difference(seeds: int) -> None:
    baseline = np.linspace(3.1, 3.4, seeds, dtype=np.float32)
    candidate = np.nextafter(baseline, np.float32(4))
    estimate = difference(candidate.tolist(), baseline.tolist())
    assert estimate.p_value is not None and estimate.p_value >= SIGNIFICANCE
    assert difference(baseline.tolist(), baseline.tolist()).p_value == 1.0


def test_equal_differences_far_above_the_step_are_shown() -> None:
    estimate = difference([2.1234] * 5, [2.2234] * 5)
    assert estimate.is_better() and estimate.p_value is not None and estimate.p_value < 1e-6


def test_seeds_that_one_of_the_two_lacks_are_left_out() -> None:
    estimate = paired_difference({1: 2.0, 2: 2.1, 4: 9.0}, {1: 2.1, 2: 2.3, 3: 0.0})
    assert estimate is not None
    assert estimate.n == 2 and estimate.mean == pytest.approx(-0.15)
    assert paired_difference({1: 2.0}, {2: 2.0}) is None


def test_of_one_pair_there_is_no_interval() -> None:
    estimate = difference([2.5])
    assert (estimate.low, estimate.high, estimate.p_value, estimate.is_within_margin) == (None, None, None, False)


@pytest.mark.parametrize("comparisons", [1, 3])
def test_a_look_has_the_level_that_it_may_spend(comparisons: int) -> None:
    levels = looks(3, 10, SIGNIFICANCE / comparisons)
    random = np.random.default_rng(comparisons)
    for n in range(2, 11):
        for effect in (0.0, 0.5, 2.0):
            values = (effect + random.standard_normal(n)).tolist()
            estimate = paired_difference(
                dict(enumerate(values)), dict.fromkeys(range(n), 0.0), comparisons=comparisons, looks=levels
            )
            assert estimate is not None
            if n < 3:
                assert (estimate.low, estimate.high, estimate.p_value) == (None, None, None)
                continue
            assert estimate.p_value is not None
            interval = stats.ttest_1samp(values, 0.0).confidence_interval(1 - levels[n].level)
            assert (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high), rel=1e-6)
            assert estimate.decides() == (estimate.p_value < SIGNIFICANCE)
            plain = difference(values, comparisons=comparisons)
            assert plain.p_value is not None and estimate.p_value >= plain.p_value * (1 - 1e-6)


LOWER = difference([-0.1, -0.11, -0.09], margin=0.01)
HIGHER = difference([0.1, 0.11, 0.09], margin=0.01)
SAME = difference([0.001, -0.001, 0.0], margin=0.01)
SLIGHTLY_LOWER = difference([-0.005, -0.0051, -0.0049], margin=0.01)
OPEN = difference([0.1, -0.1, 0.05], margin=0.01)


@pytest.mark.parametrize(
    ("found", "lost", "baseline_lost", "edges", "expected"),
    [
        (LOWER, 0, 0, "", Conclusion.BETTER),
        (LOWER, 1, 1, "", Conclusion.BETTER),
        (LOWER, 0, 1, "", Conclusion.BETTER),
        (LOWER, 1, 0, "", Conclusion.UNSTABLE),
        (LOWER, 0, 0, "mine", Conclusion.BETTER),
        (LOWER, 0, 0, "baseline", Conclusion.UNDECIDED),
        (HIGHER, 0, 0, "", Conclusion.WORSE),
        (HIGHER, 1, 0, "", Conclusion.WORSE),
        (HIGHER, 0, 1, "", Conclusion.UNDECIDED),
        (HIGHER, 0, 0, "mine", Conclusion.UNDECIDED),
        (HIGHER, 0, 0, "baseline", Conclusion.WORSE),
        (SAME, 0, 0, "", Conclusion.AS_GOOD),
        (SAME, 1, 0, "", Conclusion.UNSTABLE),
        (SAME, 0, 1, "", Conclusion.UNDECIDED),
        (SLIGHTLY_LOWER, 0, 0, "", Conclusion.BETTER),
        (SLIGHTLY_LOWER, 0, 0, "baseline", Conclusion.UNDECIDED),
        (OPEN, 0, 0, "", Conclusion.UNDECIDED),
        (OPEN, 1, 0, "", Conclusion.UNSTABLE),
        (None, 0, 0, "", Conclusion.UNDECIDED),
        (None, 2, 0, "", Conclusion.UNSTABLE),
    ],
)
def test_who_lost_more_runs_or_lies_at_an_edge_has_no_verdict_in_its_favour(
    found: Difference | None, lost: int, baseline_lost: int, edges: str, expected: Conclusion
) -> None:
    def judged(count: int, side: str) -> JudgedRuns:
        ended = range(5)
        losses = {seed: 2.0 for seed in ended if seed >= count}
        return JudgedRuns(losses=losses, lost=range(count), ended=ended, is_at_edge=edges == side)

    assert conclude(found, judged(lost, "mine"), judged(baseline_lost, "baseline")) is expected


def test_runs_on_seeds_that_the_baseline_lacks_say_nothing_of_who_is_stabler() -> None:
    candidate = JudgedRuns(losses={1: 2.0, 2: 2.0}, lost={3}, ended={1, 2, 3})
    assert conclude(OPEN, candidate, JudgedRuns(losses={1: 2.0, 2: 2.0}, ended={1, 2})) is Conclusion.UNDECIDED
    assert conclude(None, JudgedRuns(losses={}), JudgedRuns(losses={1: 2.0}, ended={1})) is Conclusion.NO_LOSS


@given(st.integers(1, 64), st.data())
def test_the_share_of_lost_runs_is_scipys_exact_interval(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, of))
    interval = stats.binomtest(count, of).proportion_ci(0.95, "exact")
    assert clopper_pearson(count, of) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("here", "there"), [(1, 0), (0, 3), (2, 5), (4, 4), (9, 1)])
def test_which_of_two_was_lost_is_a_binomial_test(here: int, there: int) -> None:
    assert sign_test(here, there) == pytest.approx(stats.binomtest(here, here + there).pvalue, rel=1e-12)


def test_no_run_leaves_every_share_open() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert sign_test(0, 0) == 1.0
    assert instability(JudgedRuns(losses={}), None) is None


def lost_runs(lost: set[int], ended: set[int]) -> JudgedRuns:
    return JudgedRuns(losses={}, lost=lost, ended=ended)


def test_lost_runs_are_held_against_the_baselines_of_the_same_seeds() -> None:
    comparison = instability(lost_runs({2, 3}, {1, 2, 3, 4, 5}), lost_runs({3}, {1, 2, 3, 4, 5}))
    assert comparison is not None and (comparison.lost, comparison.runs, comparison.p_value) == (2, 5, 1.0)
    estimate = instability(lost_runs({3}, {1, 2, 3}), None)
    assert estimate is not None and estimate.p_value is None
    six, none = lost_runs({*range(6)}, {*range(6)}), lost_runs(set(), {*range(6)})
    of_one, of_four = (instability(six, none, count) for count in (1, 4))
    assert of_one is not None and of_four is not None
    assert (of_one.p_value, of_four.p_value) == (2 / 64, 8 / 64), "Bonferroni, as of losses"


def test_a_seed_that_the_baseline_lacks_is_in_no_test_of_lost_runs() -> None:
    """Seven seeds were lost here and have no result there: nobody knows that the baseline's would not have been."""
    candidate = lost_runs({*range(7)}, {*range(10)})
    unpaired = instability(candidate, lost_runs(set(), {7, 8, 9}))
    assert unpaired is not None and (unpaired.lost, unpaired.runs, unpaired.p_value) == (7, 10, 1.0)
    paired = instability(candidate, lost_runs(set(), {*range(10)}))
    assert paired is not None and paired.p_value == pytest.approx(2 / 2**7)
