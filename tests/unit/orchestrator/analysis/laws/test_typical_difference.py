"""The difference at a typical size, held against statsmodels' random-effects mean and against simulated sizes."""

import numpy as np
import pytest
from statsmodels.stats.meta_analysis import combine_effects

from orchestrator.analysis.laws.fit import typical_difference

Cells = dict[tuple[int, int], dict[int, list[float]]]
"""(size, budget) → seed → differences."""


def drawn(random: np.random.Generator, sizes: int, spread: float, seeds: int = 4) -> Cells:
    """Differences of about -0.05 by size and seed, at two budgets each."""
    found: Cells = {}
    for size, of_size in enumerate(spread * random.standard_normal(sizes), start=1):
        for seed in range(seeds):
            for budget, value in enumerate((-0.05 + of_size + 0.01 * random.standard_normal(2)).tolist()):
                found.setdefault((size, budget), {})[seed] = [value]
    return found


def test_it_is_hartung_and_knapps_mean_of_sizes_that_are_as_noisy() -> None:
    differences = drawn(np.random.default_rng(0), 5, 0.03)
    found = typical_difference(differences)
    by_size = [np.array([[*differences[size, budget].values()] for budget in (0, 1)]) for size in range(1, 6)]
    means = [float(np.mean(each)) for each in by_size]
    of_seeds = [float(np.var(each.mean(axis=0), ddof=1)) / 4 for each in by_size]
    oracle = combine_effects(np.array(means), np.full(5, np.mean(of_seeds)), method_re="chi2", use_t=True)
    assert found is not None
    assert found.difference.mean == pytest.approx(oracle.mean_effect_re)
    assert (found.difference.low, found.difference.high) == pytest.approx(oracle.conf_int(use_t=True)[3])
    assert found.spread == pytest.approx(np.sqrt(oracle.tau2))


@pytest.mark.parametrize(("sizes", "spread"), [(3, 0.0), (5, 0.005), (7, 0.03)])
def test_intervals_hold_the_mean_that_sizes_were_drawn_about(sizes: int, spread: float) -> None:
    random, held = np.random.default_rng(1), 0
    for _ in range(400):
        found = typical_difference(drawn(random, sizes, spread))
        assert found is not None and found.difference.low is not None and found.difference.high is not None
        held += found.difference.low <= -0.05 <= found.difference.high
    assert held / 400 == pytest.approx(0.95, abs=0.033), "three standard errors"


def test_two_sizes_are_no_sample_and_one_seed_tells_no_noise() -> None:
    assert typical_difference(drawn(np.random.default_rng(0), 2, 0.0)) is None
    assert typical_difference({(3, 1): {0: [0.1]}}) is None
    found = typical_difference(drawn(np.random.default_rng(0), 4, 0.0, seeds=1))
    assert found is not None and found.spread is None


def test_what_a_budget_does_is_no_difference_between_sizes() -> None:
    """One budget costs 0.3 nats, and two sizes lack it: those that have it are not taken for other sizes."""
    random = np.random.default_rng(2)
    differences: Cells = {
        (size, budget): {seed: [0.3 * (budget == 20) + 0.001 * float(random.standard_normal())] for seed in range(3)}
        for size in (1, 2, 3, 4, 5)
        for budget in (10, 20)
        if budget == 10 or size > 2
    }
    found = typical_difference(differences)
    assert found is not None and found.spread is not None
    assert found.difference.mean == pytest.approx(0, abs=0.002)
    assert found.spread < 0.002
    assert (found.cells_left_out, found.in_common) == (3, True)


def test_a_seed_without_one_of_the_budgets_is_no_noise_and_hides_no_spread() -> None:
    """Sizes lie 0.02 apart. One seed of each lost the budget that costs 0.3: it looked like 0.1 of noise, and sizes
    like one."""
    differences: Cells = {
        (size, budget): {
            seed: [0.02 * size + 0.3 * (budget == 20) + 0.001 * seed]
            for seed in range(3)
            if budget == 10 or seed != size % 3
        }
        for size in (1, 2, 3, 4, 5)
        for budget in (10, 20)
    }
    found = typical_difference(differences)
    assert found is not None and found.spread is not None
    assert found.spread == pytest.approx(np.std([0.02, 0.04, 0.06, 0.08, 0.1], ddof=1), rel=0.05)
    lacking = {cell: {seed: each for seed, each in of.items() if seed < 2} for cell, of in differences.items()}
    without = typical_difference(lacking)
    assert without is not None and without.spread is None, "nothing tells what seeds vary by"


def test_budgets_are_in_common_by_tokens_or_by_tokens_for_each_parameter() -> None:
    by_parameter: Cells = {(size, 20 * size): {0: [0.0], 1: [0.01]} for size in (100, 200, 500)}
    found = typical_difference(by_parameter)
    assert found is not None and (found.cells_left_out, found.in_common) == (0, True)
    strange: Cells = {(size, size**2): {0: [0.0], 1: [0.01]} for size in (100, 200, 500)}
    own = typical_difference(strange)
    assert own is not None and (own.cells_left_out, own.in_common) == (0, False)
