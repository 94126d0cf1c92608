"""The gate for campaigns: its ledger, its tries, and sequential levels as small as late tries have them."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from benchmarks.research_gate import (
    POWER,
    SEQUENCES,
    TOTAL_ERROR,
    conduct,
    design,
    fixed_seeds,
    level,
    null_campaigns,
    true_gain,
)
from orchestrator.analysis.sequential import FUTILE, chance_of_verdict, looks


def test_the_first_of_any_number_of_tries_never_spend_more_than_the_campaign_may() -> None:
    for name in SEQUENCES:
        spent = math.fsum(level(place, name) for place in range(1, 20_000) if SEQUENCES[name](place))
        assert 0.8 * TOTAL_ERROR < spent <= TOTAL_ERROR, name


def test_the_shares_of_the_logarithmic_sequence_sum_to_one() -> None:
    """All shares from n on are between the integrals of the same from n and from n − 1: 1 / (C ln n)."""
    known = math.fsum(SEQUENCES["logarithms"](place) for place in range(1, 100_000))
    assert known + 1 / (2.1097428012 * math.log(100_000.5)) == pytest.approx(1, abs=1e-6)


def test_a_try_is_the_t_tests_at_its_looks_one_after_the_other() -> None:
    plan = design(level(3))
    differences = np.random.default_rng(3).standard_normal((40, plan.most)) - 0.6
    improved, used = conduct(differences, plan)
    twins = [slow_try(row, plan.first, plan.most, plan.levels) for row in differences]
    assert list(zip(improved.tolist(), used.tolist(), strict=True)) == twins
    assert 0 < sum(improved) < 40


def slow_try(row: np.ndarray, first: int, most: int, levels: Mapping[int, float]) -> tuple[bool, int]:
    """Called improved or not, after so many pairs."""
    for n in range(first, most + 1):
        test = ttest_1samp(row[:n], 0)
        if test.pvalue < levels[n]:
            return bool(test.statistic < 0), n
        mean, error = float(row[:n].mean()), float(row[:n].std(ddof=1) / math.sqrt(n))
        if n < most and chance_of_verdict(mean, error, n, most, levels[most], can_be_worse=False) < FUTILE:
            return False, n
    return False, most


def test_the_fixed_test_has_the_least_seeds_with_the_power() -> None:
    """Against statsmodels' power of a t-test."""
    from statsmodels.stats.power import TTestPower

    for place in (1, 10, 500):
        needed = TTestPower().solve_power(1, alpha=level(place), power=POWER, alternative="larger")
        assert fixed_seeds(level(place)) == math.ceil(needed)


def test_levels_hold_where_the_error_is_as_small_as_a_late_try_has_it() -> None:
    """One in a million is seen by drawing from where it happens, x ~ N(μ, σ²) with μ² + σ² = 1; each weighs as much as
    its first n values are likelier under N(0, 1), at the look n that stops it."""
    most, error, mean = 30, 2e-6, 0.74
    variance = 1 - mean**2
    random, levels = np.random.default_rng(0), looks(4, most, error)
    x = mean + math.sqrt(variance) * random.standard_normal((20_000, most))
    crossed, weights = np.zeros(len(x), dtype=bool), np.zeros(len(x))
    for n in range(4, most + 1):
        if levels[n].level > 0:
            now = ~crossed & (ttest_1samp(x[:, :n], 0, axis=1, alternative="greater").pvalue < levels[n].level / 2)
            logarithms = ((x[now, :n] - mean) ** 2 / variance - x[now, :n] ** 2 + math.log(variance)) / 2
            weights[now] = np.exp(logarithms.sum(axis=1))
            crossed |= now
    spent, standard_error = weights.mean(), weights.std() / math.sqrt(len(x))
    assert standard_error < 0.02 * error
    assert spent == pytest.approx(error / 2, abs=4 * standard_error)


def test_a_small_campaign_calls_no_noise_a_gain_and_finds_the_gain() -> None:
    nulls = null_campaigns("normal", 400, 6)
    assert nulls.any_improved <= TOTAL_ERROR
    assert nulls.runs_over_fixed < 0.6
    gain = true_gain("normal", 6, 1000)
    assert gain.found >= POWER
    assert gain.runs_over_fixed <= 1.5
