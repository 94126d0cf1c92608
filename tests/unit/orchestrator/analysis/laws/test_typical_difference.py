"""The difference at a typical size, held against statsmodels' random-effects mean and against simulated sizes."""

import numpy as np
import pytest
from statsmodels.stats.meta_analysis import combine_effects

from orchestrator.analysis.laws.fit import typical_difference


def drawn(random: np.random.Generator, sizes: int, spread: float, seeds: int = 4) -> list[dict[int, list[float]]]:
    """Differences of about -0.05 by size and seed, at two budgets each."""
    return [
        {seed: (-0.05 + of_size + 0.01 * random.standard_normal(2)).tolist() for seed in range(seeds)}
        for of_size in spread * random.standard_normal(sizes)
    ]


def test_it_is_hartung_and_knapps_mean_of_sizes_that_are_as_noisy() -> None:
    differences = drawn(np.random.default_rng(0), 5, 0.03)
    found = typical_difference(differences)
    means = [float(np.mean([*each.values()])) for each in differences]
    of_seeds = [float(np.var([np.mean(seed) for seed in each.values()], ddof=1)) / 4 for each in differences]
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
    assert typical_difference([{}, {}, {0: [0.1]}]) is None
    found = typical_difference(drawn(np.random.default_rng(0), 4, 0.0, seeds=1))
    assert found is not None and found.spread is None
