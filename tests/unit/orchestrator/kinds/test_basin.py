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


def spiking_grid(random: np.random.Generator, share: float) -> tuple[dict[float, dict[int, float]], int]:
    """Losses of five rates on three seeds, and how many of them spike."""
    spikes = random.random((5, 3)) < share
    seeds = 0.016 * random.standard_normal(3)
    losses = {
        lr: {
            seed: bowl(lr, 2e-3, 0.003)
            + float(seeds[seed] + 0.0035 * random.standard_normal() + spikes[i, seed] * random.uniform(0.05, 0.5))
            for seed in range(3)
        }
        for i, lr in enumerate(RATES)
    }
    return losses, int(spikes.sum())


@pytest.mark.parametrize(("share", "least_found", "most_off"), [(0.15, 0.85, 0.02), (0.3, 0.65, 0.06)])
def test_frequent_spikes_are_found_in_a_grid(share: float, least_found: float, most_off: float) -> None:
    """Three of ten: the median of fifteen deviations would be that of spikes."""
    random = np.random.default_rng(1)
    planted = found = off = 0
    for _ in range(300):
        losses, count = spiking_grid(random, share)
        of = grid(losses)
        planted += count
        found += len({(lr, seed) for lr, seed in of.spikes if losses[lr][seed] > bowl(lr, 2e-3, 0.003) + 0.04})
        off += len({(lr, seed) for lr, seed in of.spikes if losses[lr][seed] < bowl(lr, 2e-3, 0.003) + 0.04})
    assert found >= least_found * planted
    assert off <= most_off * 300 * 15


def test_a_rate_of_which_most_runs_spiked_has_no_mean() -> None:
    losses = {lr: {seed: bowl(lr, 2e-3) + 0.001 * seed for seed in range(3)} for lr in RATES}
    losses[4e-3] |= {0: 3.6, 2: 3.3}
    found = grid(losses)
    assert found.spikes == {(4e-3, 0), (4e-3, 2)}
    assert sorted(found.means()) == [5e-4, 1e-3, 2e-3, 8e-3]
    beside = basin(found, RATES)
    assert beside is not None
    assert beside.rates == (5e-4, 2e-3), "what lies there nobody knows, as beside a cliff"


def test_a_rate_far_away_whose_runs_scatter_says_nothing_of_those_about_the_best() -> None:
    random = np.random.default_rng(0)
    of = {lr: {seed: bowl(lr, 2e-3) + 0.002 * float(random.standard_normal()) for seed in range(5)} for lr in RATES}
    quiet = grid(of)
    of[5e-4] = {seed: 3.5 + 0.03 * float(random.standard_normal()) for seed in range(5)}
    noisy = grid(of)
    around = (1e-3, 2e-3, 4e-3)
    assert noisy.variance(around) == quiet.variance(around)
    assert noisy.variance(around)[1] == 8
    assert noisy.variance(RATES)[0] > 5 * noisy.variance(around)[0]
    assert noisy.variance(()) == noisy.variance((2e-3,)) == (0.0, 0)
