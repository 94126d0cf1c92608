"""The gate's benchmark: its many tries at once are the product's one try, and the fixed test that they cost against."""

import math

import numpy as np

from benchmarks.research_gate import POWER, TOTAL_ERROR, conduct, fixed_seeds, null_campaigns, true_gain
from orchestrator.campaigns.improvement import PairsState, judge_improvement, most_pairs, try_level


def test_many_tries_at_once_are_one_after_the_other() -> None:
    level = try_level(3, TOTAL_ERROR)
    differences = np.random.default_rng(3).standard_normal((40, most_pairs(level))) - 0.6
    improved, used = conduct(differences, level, 1.0)
    found = [judge_improvement(row, level=level, gain=1.0, most=len(row)) for row in differences.tolist()]
    assert improved.tolist() == [each.state is PairsState.SHOWN for each in found]
    assert used.tolist() == [each.pairs for each in found]
    assert 0 < sum(improved) < 40


def test_the_fixed_test_has_the_least_seeds_with_the_power() -> None:
    """Against statsmodels' power of a t-test."""
    from statsmodels.stats.power import TTestPower

    for place in (1, 10, 500):
        level = try_level(place, TOTAL_ERROR)
        needed = TTestPower().solve_power(1, alpha=level, power=POWER, alternative="larger")
        assert fixed_seeds(level) == math.ceil(needed)


def test_a_small_campaign_calls_no_noise_a_gain_and_finds_the_gain() -> None:
    for noise in ("normal", "skewed-worse"):
        nulls = null_campaigns(noise, 1.0, 400, 6)
        assert nulls.any_improved <= TOTAL_ERROR
        assert nulls.runs_over_fixed < 0.8
        gain = true_gain(noise, 1.0, 6, 1000)
        assert gain.found >= POWER
        assert gain.runs_over_fixed <= 1.5
