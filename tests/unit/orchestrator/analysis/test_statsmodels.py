"""What a table says, end to end, is what statsmodels says: intervals, p-values, shares, power."""

import numpy as np
import pytest
from orchestrator.analysis.stability import clopper_pearson, sign_test
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from orchestrator.analysis.power import POWER, FixedDesign, detectable_difference
from orchestrator.analysis.statistics import paired_difference
from orchestrator.records import SIGNIFICANCE


@pytest.mark.parametrize("comparisons", [1, 4])
@pytest.mark.parametrize("seeds", [2, 5, 20])
def test_paired_differences_among_several(seeds: int, comparisons: int) -> None:
    """Bonferroni's intervals and p-values, of differences that are shown and of others."""
    random = np.random.default_rng(seeds)
    baseline = 3.0 + 0.1 * random.standard_normal(seeds)
    candidates = [baseline + 0.02 * place + 0.02 * random.standard_normal(seeds) for place in range(comparisons)]
    tests = [DescrStatsW(each - baseline) for each in candidates]
    _, p_values, *_ = multipletests([each.ttest_mean(0.0)[1] for each in tests], method="bonferroni")
    for candidate, test, p_value in zip(candidates, tests, p_values, strict=True):
        found = paired_difference(list(candidate), list(baseline), comparisons)
        assert found is not None
        assert (found.low, found.high) == pytest.approx(test.tconfint_mean(SIGNIFICANCE / comparisons), rel=1e-9)
        assert (found.mean, found.p_value) == pytest.approx((test.mean, p_value), rel=1e-7)


@pytest.mark.parametrize(("count", "of"), [(0, 5), (1, 5), (2, 10), (5, 5), (3, 64)])
def test_shares_of_unstable_runs(count: int, of: int) -> None:
    assert clopper_pearson(count, of) == pytest.approx(proportion_confint(count, of, method="beta"), rel=1e-9)


@pytest.mark.parametrize(("here", "there"), [(1, 0), (0, 3), (2, 5), (4, 4), (9, 1)])
def test_which_of_two_was_lost(here: int, there: int) -> None:
    assert sign_test(here, there) == pytest.approx(mcnemar([[0, here], [there, 0]], exact=True).pvalue, rel=1e-12)


@pytest.mark.parametrize("comparisons", [1, 3])
@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_the_least_difference_that_a_design_shows(seeds: int, comparisons: int) -> None:
    """In standard deviations of the paired difference; one side of a two-sided test, since the other is the opposite
    verdict."""
    effect = TTestPower().solve_power(
        nobs=seeds, alpha=SIGNIFICANCE / comparisons / 2, power=POWER, alternative="larger"
    )
    found = detectable_difference(FixedDesign(noise_sd=0.01, comparisons=comparisons), seeds)
    assert found == pytest.approx(0.01 * effect, rel=1e-5)
