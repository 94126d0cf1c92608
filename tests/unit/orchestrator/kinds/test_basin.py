"""Basins: where one is lowest, what another rate may be worth, and which runs spiked."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.kinds.basin import basin, grid

RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)


def bowl(lr: float, best: float, curvature: float = 0.05) -> float:
    return 3.0 + curvature * math.log2(lr / best) ** 2


@given(st.floats(7.2e-4, 5.5e-3), st.floats(0.001, 0.5))
def test_the_vertex_of_a_parabola_is_its_minimum_wherever_it_lies_between_rates(best: float, curvature: float) -> None:
    found = basin(grid({lr: {0: bowl(lr, best, curvature)} for lr in RATES}), RATES)
    assert found is not None
    assert found.vertex == pytest.approx(best, rel=6e-3), "three digits"
    assert found.regret(0.0) < 1e-4 * curvature + 1e-12


def test_seen_from_a_rate_off_the_minimum_the_regret_is_the_depth_that_is_missed() -> None:
    found = basin(grid({lr: {0: bowl(lr, 2.5e-3)} for lr in RATES}), RATES, seen_from=2e-3)
    assert found is not None
    assert found.regret(0.0) == pytest.approx(bowl(2e-3, 2.5e-3) - 3.0, rel=1e-2)


def test_regret_grows_with_noise_and_shrinks_with_tuning_seeds() -> None:
    def at(seeds: int) -> float:
        found = basin(grid({lr: {seed: bowl(lr, 2e-3, 0.01) for seed in range(seeds)} for lr in RATES}), RATES)
        assert found is not None
        return found.regret(0.0035**2)

    assert at(1) > at(3) > at(9) > 0
    assert at(1) == pytest.approx(9 * at(9), rel=1e-6), "within reach it is the slope's variance"


def test_a_flat_basin_costs_at_most_its_slopes_bound_within_reach() -> None:
    found = basin(grid({lr: {0: 3.0} for lr in RATES}), RATES)
    assert found is None, "equal losses: the lowest rate is best, and it is an edge"
    dip = basin(grid({lr: {0: 3.0 - 1e-12 * (lr == 2e-3)} for lr in RATES}), RATES)
    assert dip is not None
    assert dip.regret(0.0035**2) == pytest.approx(1.96 * 0.0035 * math.sqrt(0.5), rel=1e-3)


def test_beside_a_lost_rate_the_slope_goes_on_to_it() -> None:
    """0.02 nats a factor of two; the cliff is anywhere up to 4e-3, where 1e-3 and 2e-3 were trained."""
    known = {5e-4: {0: 3.04}, 1e-3: {0: 3.02}, 2e-3: {0: 3.0}}
    found = basin(grid(known), (5e-4, 1e-3, 2e-3, 4e-3))
    assert found is not None
    assert found.vertex == 2e-3
    assert found.regret(0.0) == pytest.approx(0.02)


def test_spikes_are_found_and_heavy_tails_are_none() -> None:
    """1,000 grids of five rates on three seeds, with noise of Student's t and every hundredth run 0.2 too high."""
    random = np.random.default_rng(0)
    found = planted = false = 0
    for _ in range(1000):
        noise = 0.002 * random.standard_t(3, (5, 3)) + 0.016 * random.standard_normal(3)
        spikes = random.random((5, 3)) < 0.01
        losses = {
            lr: {seed: bowl(lr, 2e-3) + noise[i, seed] + 0.2 * spikes[i, seed] for seed in range(3)}
            for i, lr in enumerate(RATES)
        }
        said = {(RATES.index(lr), seed) for lr, seed in grid(losses).spikes}
        meant = {(int(i), int(j)) for i, j in np.argwhere(spikes)}
        planted += len(meant)
        found += len(said & meant)
        false += len(said - meant)
    assert found >= 0.9 * planted
    assert false <= 15, "one in a thousand runs"
