"""Basins: where one is lowest, what another rate may be worth, and which runs spiked."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.kinds.basin import LEAST_RISE, MISFIT, STEP_BACK, Basin, basin, grid

RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)


def bowl(lr: float, best: float, curvature: float = 0.05) -> float:
    return 3.0 + curvature * math.log2(lr / best) ** 2


@given(st.floats(7.2e-4, 5.5e-3), st.floats(0.001, 0.5))
def test_the_vertex_of_a_parabola_is_its_minimum_wherever_it_lies_between_rates(best: float, curvature: float) -> None:
    found = basin(grid({lr: {0: bowl(lr, best, curvature)} for lr in RATES}), RATES)
    assert found is not None
    assert found.vertex == pytest.approx(best, rel=6e-3), "three digits"
    assert found.regret(0.0) - misfit(found) < 1e-4 * curvature + 1e-12


def misfit(of: Basin) -> float:
    """What a basin may be lower that is no parabola."""
    return MISFIT * of.rise() + (of.rise() - LEAST_RISE) * of.is_coarse()


@given(
    st.lists(st.floats(0.1, 1.5), min_size=2, max_size=2),
    st.lists(st.floats(1e-3, 1), min_size=2, max_size=2),
    st.floats(-0.5, 0.5),
)
def test_the_parabola_is_numpys_through_the_same_three_points(
    gaps: list[float], rises: list[float], eye: float
) -> None:
    """The readable twin: `polyfit` in log lr, its lowest point, and its slope where it is seen from."""
    below, above = 1e-3 * math.exp(-gaps[0]), 1e-3 * math.exp(gaps[1])
    losses = {below: {0: 3.0 + rises[0]}, 1e-3: {0: 3.0}, above: {0: 3.0 + rises[1]}}
    seen_from = 1e-3 * math.exp(eye)
    found = basin(grid(losses), [*losses], seen_from)
    a, b, _ = np.polyfit([-gaps[0], 0.0, gaps[1]], [rises[0], 0.0, rises[1]], 2)
    assert found is not None
    assert (found.curvature, found.slope) == pytest.approx((a, 2 * a * eye + b), rel=1e-6, abs=1e-9)
    assert math.log(found.vertex / 1e-3) == pytest.approx(-b / (2 * a), abs=6e-3), "three digits"
    assert found.rise() == pytest.approx(a * (sum(gaps) / 2) ** 2, rel=1e-6)
    assert found.rates == (below, 1e-3, above)


@given(st.floats(-0.5, 0.5))
def test_the_regret_of_near_rates_covers_a_kink(kink: float) -> None:
    """Rates a factor of 1.19 apart, as a refined grid has them, and a loss that rises as fast on either side: at the
    lowest point of the parabola it lies above that at the kink by no more than the regret, but for three digits."""
    gap = math.log(1.19)
    rates = {math.exp(step * gap): step * gap for step in (-2, -1, 0, 1, 2)}
    found = basin(grid({rate: {0: 3.0 + 0.1 * abs(x - kink * gap)} for rate, x in rates.items()}), [*rates])
    assert found is not None and not found.is_coarse()
    assert 0.1 * abs(math.log(found.vertex) - kink * gap) <= found.regret(0.0) + 5e-4


def test_a_coarse_basin_may_be_lower_by_what_it_rises() -> None:
    coarse, refined = (
        basin(grid({lr: {0: bowl(lr, 1e-3, 0.1)} for lr in rates}), rates)
        for rates in ((2.5e-4, 1e-3, 4e-3), (1e-3 / 1.2, 1e-3, 1.2e-3))
    )
    assert coarse is not None and refined is not None
    assert (coarse.is_coarse(), refined.is_coarse()) == (True, False)
    assert coarse.regret(0.0) == pytest.approx(MISFIT * 0.4 + 0.39, rel=1e-3)
    assert refined.regret(0.0) == pytest.approx(MISFIT * 0.1 * math.log2(1.2) ** 2, rel=1e-3)


def test_seen_from_a_rate_off_the_minimum_the_regret_is_the_depth_that_is_missed() -> None:
    found = basin(grid({lr: {0: bowl(lr, 2.5e-3)} for lr in RATES}), RATES, seen_from=2e-3)
    assert found is not None
    assert found.regret(0.0) - misfit(found) == pytest.approx(bowl(2e-3, 2.5e-3) - 3.0, rel=1e-2)


def test_regret_grows_with_noise_and_shrinks_with_tuning_seeds() -> None:
    def at(seeds: int) -> float:
        found = basin(grid({lr: {seed: bowl(lr, 2e-3, 0.01) for seed in range(seeds)} for lr in RATES}), RATES)
        assert found is not None
        return found.regret(0.0035**2) - misfit(found)

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
    assert found.vertex == pytest.approx(2e-3 / STEP_BACK, rel=1e-2), "a step back from where some runs would diverge"
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


def test_noise_of_more_than_a_hundredth_of_the_loss_is_no_spike() -> None:
    """Lion on gpt2-nano: one run of nine spiked. Four were called so, where 1 % of the loss was enough and no degree of
    freedom was left to see that it was not."""
    losses = {
        0.001: {1: 2.112, 2: 2.152, 3: 2.180},
        0.002: {1: 2.048, 2: 2.110, 3: 2.078},
        0.004: {1: 2.015, 2: 2.541, 3: 2.170},
    }
    found = grid(losses)
    assert found.spikes == {(0.004, 2)}
    assert found.spread == pytest.approx(0.039, abs=0.001)
    assert basin(found, [*losses]) is not None


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
