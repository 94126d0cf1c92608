"""Stability apart from loss: which judged runs spiked, and on whose seeds."""

import numpy as np
import pytest
from orchestrator.analysis.stability import clopper_pearson, instability, sign_test, spikes


def test_no_run_leaves_every_share_open() -> None:
    """Of others `test_statsmodels.py` has intervals and tests."""
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert sign_test(0, 0) == 1.0


def test_the_higher_run_of_a_pair_that_lies_apart_spiked() -> None:
    baseline = {1: 3.0, 2: 3.02, 3: 2.99, 4: 3.3, 5: 3.01}
    mine = {1: 3.001, 2: 3.018, 3: 3.2, 4: 3.001, 5: 3.012}
    assert spikes(mine, baseline, 0.003) == (frozenset({3}), frozenset({4}))
    assert spikes(mine, baseline, None) == (frozenset(), frozenset()), "nothing is known to be unusual"


@pytest.mark.parametrize(
    "spiked", [{2: 0.5}, {2: 0.5, 3: 0.6}, {2: 0.5, 3: 0.51}, {1: 0.3, 3: 0.4}], ids=["one", "two", "alike", "apart"]
)
@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_spikes_of_half_of_the_runs_and_more_are_of_the_one_whose_losses_jump(
    spiked: dict[int, float], seeds: int
) -> None:
    """The differences alone do not tell: those to a baseline that spiked twice of three times are as those of a
    candidate that spiked once."""
    stable = {seed: 3.0 + 0.01 * seed for seed in range(1, 1 + seeds)}
    planted = frozenset(spiked) & stable.keys()
    mine = {seed: loss + 0.001 * (seed % 2) for seed, loss in stable.items()}
    jumped = {seed: loss + spiked.get(seed, 0.0) for seed, loss in stable.items()}
    assert spikes(mine, jumped, 0.003) == (frozenset(), planted)
    assert spikes(jumped, mine, 0.003) == (planted, frozenset())


@pytest.mark.parametrize("count", [4, 8, 9])
def test_spikes_of_nearly_half_of_the_runs_are_found(count: int) -> None:
    """Of twenty: a median deviation would be that of the spikes."""
    random = np.random.default_rng(count)
    baseline = {seed: float(3.3 + 0.016 * random.standard_normal()) for seed in range(20)}
    mine = {seed: loss + float(0.003 * random.standard_normal()) for seed, loss in baseline.items()}
    planted = frozenset(range(count))
    spiked = {seed: loss + (seed in planted) * float(random.uniform(0.05, 0.5)) for seed, loss in baseline.items()}
    assert spikes(mine, spiked, 0.003) == (frozenset(), planted)
    assert spikes(spiked, mine, 0.003) == (planted, frozenset())


def test_a_noise_that_tuning_did_not_show_is_no_spike() -> None:
    """Judged runs that scatter four times as much as those of the grid, without gaps between them."""
    random = np.random.default_rng(0)
    noise = {seed: float(3.0 + 0.02 * random.standard_normal()) for seed in range(30)}
    assert spikes(noise, dict.fromkeys(range(30), 3.0), 0.005) == (frozenset(), frozenset())


def test_on_a_seed_with_a_high_loss_a_difference_in_proportion_is_no_spike() -> None:
    """Excess risks of seeds that differ by a factor of a hundred, and noise of 5 %."""
    baseline = {1: 0.01, 2: 0.02, 3: 0.015, 4: 1.0, 5: 0.03}
    mine = {seed: loss * (1.05 if seed % 2 else 0.95) for seed, loss in baseline.items()}
    assert spikes(mine, baseline, 0.001) == spikes(baseline, mine, 0.001) == (frozenset(), frozenset())


@pytest.mark.parametrize("count", [5, 10])
@pytest.mark.parametrize("shares", [(0.15, 0.0), (0.0, 0.15), (0.15, 0.15)])
def test_where_seeds_lie_orders_of_magnitude_apart_a_spike_is_the_runs_own(
    shares: tuple[float, float], count: int
) -> None:
    """Of 200 experiments, runs that spiked by factors of 3 to 20: the other's runs on the other seeds are not called
    spikes instead. Standard error 0.2 %."""
    random = np.random.default_rng(count)
    wrong = found = planted_runs = 0
    for _ in range(200):
        levels = 0.01 * np.exp(2 * random.standard_normal(count))
        stable = [levels * np.exp(0.05 * random.standard_normal(count)) for _ in shares]
        spread = float(np.std(stable[0] - stable[1], ddof=1))
        jumped = [random.random(count) < share for share in shares]
        ended = [np.where(at, of * random.uniform(3, 20, count), of) for at, of in zip(jumped, stable, strict=True)]
        mine, baseline = (dict(enumerate(of.tolist())) for of in ended)
        for called, at in zip(spikes(mine, baseline, spread), jumped, strict=True):
            planted = set(np.flatnonzero(at).tolist())
            wrong += len(called - planted)
            found += len(called & planted)
            planted_runs += len(planted)
    assert wrong / (200 * count) < 0.006
    assert found > planted_runs / 6, "many on seeds of low losses are lost in the spread of the others"


@pytest.mark.parametrize("swapped", [False, True])
def test_one_loss_far_from_all_others_makes_no_spikes_of_these(swapped: bool) -> None:
    """A seed on which both spiked, or a run that ended 0.2 nats lower than usual."""
    baseline = dict(enumerate([3.274, 3.319, 3.319, 3.309, 3.266, 3.426, 3.301, 3.344, 3.328, 3.317]))
    mine = dict(enumerate([3.274, 3.317, 3.469, 3.307, 3.258, 3.408, 3.303, 3.286, 3.334, 3.396]))
    expected = (frozenset({2, 9}), frozenset({7}))
    assert spikes(*((baseline, mine) if swapped else (mine, baseline)), 0.003) == expected[:: -1 if swapped else 1]
    usual, lucky = [3.301, 3.297, 3.303, 3.299, 3.305], [3.2962, 3.294, 3.102, 3.3005, 3.3073]
    first, second = (usual, lucky) if swapped else (lucky, usual)
    here, there = spikes(dict(enumerate(first)), dict(enumerate(second)), 0.005)
    assert len(here | there) <= 1


def test_lost_runs_are_held_against_the_baselines_of_the_same_seeds() -> None:
    found = instability({2, 3}, {1, 2, 3, 4, 5}, {3})
    assert (found.lost, found.runs, found.p_value) == (2, 5, 1.0)
    assert instability({3}, {1, 2, 3}, None).p_value is None
    of_one, of_four = (instability(set(range(6)), set(range(6)), set(), count).p_value for count in (1, 4))
    assert (of_one, of_four) == (2 / 64, 8 / 64), "Bonferroni, as of losses"


def test_a_seed_that_the_baseline_lacks_tells_nothing_of_who_is_stabler() -> None:
    """Seven seeds were lost here and have no result there: nobody knows that the baseline's would not have been."""
    seeds = set(range(10))
    unpaired = instability(set(range(7)), seeds, set(), baseline_ended={7, 8, 9})
    assert (unpaired.lost, unpaired.runs, unpaired.p_value) == (7, 10, 1.0)
    assert instability(set(range(7)), seeds, set()).p_value == pytest.approx(2 / 2**7)
