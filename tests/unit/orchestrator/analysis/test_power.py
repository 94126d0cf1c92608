"""What a design can show, held against scipy.stats' noncentral t and against simulated experiments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.power import MOST_SEEDS, POWER, detectable_difference, noise, power_of, seeds_needed
from orchestrator.analysis.statistics import paired_difference
from orchestrator.records import SIGNIFICANCE


@pytest.mark.parametrize(
    ("seeds", "difference", "comparisons"), [(3, 2.0, 1), (5, 2.0, 4), (10, 1.0, 1), (40, 0.4, 2), (200, 0.2, 9)]
)
def test_power_is_that_of_the_noncentral_t(seeds: int, difference: float, comparisons: int) -> None:
    limit = stats.t.ppf(1 - SIGNIFICANCE / comparisons / 2, seeds - 1)
    expected = stats.nct.sf(limit, seeds - 1, difference * np.sqrt(seeds))
    assert power_of(difference, 1.0, seeds, comparisons) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("difference", "comparisons"), [(2.0, 1), (1.5, 3), (0.8, 1)])
def test_the_advised_seeds_are_those_of_simulated_experiments_within_one(difference: float, comparisons: int) -> None:
    """The product's own test is run on 4,000 experiments for each number of seeds around the advice."""
    advised = seeds_needed(difference, 1.0, comparisons)
    assert advised is not None
    random = np.random.default_rng(0)

    def shown(seeds: int) -> float:
        draws = difference + random.standard_normal((4_000, seeds))
        found = [paired_difference(each.tolist(), [0.0] * seeds, comparisons) for each in draws]
        return float(np.mean([each is not None and each.decides() for each in found]))

    assert shown(advised + 1) > POWER - 0.01
    assert shown(advised - 2) < POWER + 0.01


@given(st.floats(1e-4, 1e2), st.integers(2, 60), st.integers(1, 10))
def test_seeds_and_differences_are_inverses(noise_sd: float, seeds: int, comparisons: int) -> None:
    least = detectable_difference(noise_sd, seeds, comparisons)
    assert least is not None
    assert power_of(least, noise_sd, seeds, comparisons) == pytest.approx(POWER, abs=1e-6)
    needed = seeds_needed(least * 1.0001, noise_sd, comparisons)
    assert needed is not None
    assert needed <= seeds
    assert power_of(least, noise_sd, seeds - 1, comparisons) < POWER


def test_what_cannot_be_shown_is_none() -> None:
    assert detectable_difference(0.01, 1) is None
    assert seeds_needed(1e-6, 1.0) is None
    assert seeds_needed(0.0, 1.0) is None
    assert power_of(0.1, 0.0, 2) == 1.0
    assert seeds_needed(1.0, 1.0, comparisons=1) is not None
    assert MOST_SEEDS >= 100


def test_noise_is_what_was_planted_whatever_seeds_and_candidates_add() -> None:
    """Seeds that move all candidates by 0.016 and candidates that differ by 0.1 leave the paired deviation alone."""
    random = np.random.default_rng(1)

    def experiment() -> list[dict[int, float]]:
        seeds = random.normal(3.0, 0.016, size=5)
        offsets = random.normal(0.0, 0.1, size=4)
        noise_of_runs = random.normal(0.0, 0.005 / np.sqrt(2), size=(4, 5))
        return [
            {seed: float(seeds[seed] + offsets[each] + noise_of_runs[each, seed]) for seed in range(5)}
            for each in range(4)
        ]

    found = noise(experiment() for _ in range(200))
    assert found is not None
    assert found.degrees == 200 * 12
    assert found.experiments == 200
    assert found.paired_sd == pytest.approx(0.005, rel=0.05)


def test_noise_counts_common_seeds_only_and_needs_a_pair_of_them() -> None:
    assert noise([]) is None
    assert noise([[]]) is None
    assert noise([[{0: 1.0, 1: 2.0}]]) is None
    assert noise([[{0: 1.0, 1: 2.0}, {1: 2.0, 2: 3.0}]]) is None
    found = noise([[{0: 1.0, 1: 2.0, 7: 9.0}, {0: 1.0, 1: 2.2}]])
    assert found is not None
    assert found.degrees == 1
    # One pair of seeds: the differences are 0 and 0.2, whose standard deviation is 0.2 / sqrt(2).
    assert found.paired_sd == pytest.approx(0.2 / np.sqrt(2))
