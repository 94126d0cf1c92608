"""Power of a comparison before it runs: against simulated experiments of the product's own test, and statsmodels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import TTestPower

from orchestrator.analysis.estimator import half_width
from orchestrator.analysis.power import (
    MOST_ADVISED_SEEDS,
    POWER,
    chance_shown,
    chance_within,
    least_difference,
    least_seeds,
    level_of,
    paired_sd,
    seeds_to_decide,
)
from orchestrator.analysis.sequential import Array

EXPERIMENTS = 10_000


def simulated(difference: float, n: int, tail: float, error: float) -> tuple[Array, Array]:
    """Means of the paired differences of many experiments, whose validation text moves all pairs of one alike, and the
    half widths of their intervals."""
    random = np.random.default_rng([n, int(1e6 * difference)])
    moved = difference + error * random.standard_normal((EXPERIMENTS, 1))
    pairs = moved + 0.01 * random.standard_normal((EXPERIMENTS, n))
    half = [half_width(tail, n, sd, error) for sd in pairs.std(axis=1, ddof=1).tolist()]
    return pairs.mean(axis=1), np.array(half)


@pytest.mark.parametrize("comparisons", [1, 3])
@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_the_least_difference_is_statsmodels(seeds: int, comparisons: int) -> None:
    """In standard deviations of the paired difference; one side of a two-sided test, since the other is the opposite
    verdict."""
    effect = TTestPower().solve_power(nobs=seeds, alpha=level_of(comparisons) / 2, power=POWER, alternative="larger")
    assert least_difference(seeds, 0.01, level_of(comparisons)) == pytest.approx(0.01 * effect, rel=1e-3)


@pytest.mark.parametrize(
    ("difference", "n", "comparisons", "error"),
    [
        (0.012, 5, 1, 0.0), (0.01, 10, 1, 0.0), (0.01, 10, 4, 0.0), (0.0, 10, 1, 0.0),
        (0.012, 10, 1, 0.003), (0.02, 3, 1, 0.003), (0.02, 5, 1, 0.006),
    ],
)  # fmt: skip
def test_power_is_that_of_simulated_experiments(difference: float, n: int, comparisons: int, error: float) -> None:
    """Within 1.5 points: three standard errors of the simulated share."""
    mean, half = simulated(difference, n, level_of(comparisons) / 2, error)
    expected = chance_shown(difference, n, 0.01, level_of(comparisons), error)
    assert expected == pytest.approx(np.mean(mean > half), abs=0.015)


@pytest.mark.parametrize(
    ("difference", "n", "comparisons", "error"),
    [(0.0, 10, 1, 0.0), (0.0, 20, 4, 0.0), (0.003, 20, 1, 0.0), (0.0, 20, 1, 0.002), (0.0, 6, 1, 0.001)],
)
def test_the_chance_of_as_good_is_that_of_simulated_experiments(
    difference: float, n: int, comparisons: int, error: float
) -> None:
    mean, half = simulated(difference, n, level_of(comparisons), error)
    expected = chance_within(0.01, n, 0.01, level_of(comparisons), error, difference)
    assert expected == pytest.approx(np.mean(abs(mean) + half < 0.01), abs=0.015)


@given(st.floats(1e-4, 1e2), st.integers(2, 60), st.integers(1, 10))
def test_seeds_and_differences_are_inverses(sd: float, seeds: int, comparisons: int) -> None:
    level = level_of(comparisons)
    difference = least_difference(seeds, sd, level)
    assert difference is not None
    assert least_seeds(lambda n: chance_shown(difference * 1.0001, n, sd, level)) == seeds


def test_what_cannot_be_shown_is_none() -> None:
    """The error of the validation text is the same whatever the seeds are."""
    assert least_seeds(lambda n: chance_shown(0.01, n, 0.01, 0.05, 0.01)) is None
    assert least_seeds(lambda n: chance_shown(1e-5, n, 0.01, 0.05)) is None
    assert least_difference(1, 0.01, 0.05) is None
    assert chance_shown(0.01, 1, 0.01, 0.05) == chance_within(0.01, 1, 0.01, 0.05) == 0.0


@pytest.mark.parametrize(("mean", "margin"), [(0.006, None), (0.006, 0.01), (0.001, 0.01)])
def test_the_seeds_to_decide_are_those_of_either_verdict(mean: float, margin: float | None) -> None:
    seeds = seeds_to_decide(mean, 0.01, 0.05, 0.0, margin)
    shown = least_seeds(lambda n: chance_shown(mean, n, 0.01, 0.05))
    margin_seeds = least_seeds(lambda n: chance_within(0.01, n, 0.01, 0.05, difference=mean)) if margin else None
    assert seeds == min(count for count in (shown, margin_seeds, MOST_ADVISED_SEEDS) if count is not None)


def test_no_number_of_seeds_decides_a_difference_of_nothing_without_a_margin() -> None:
    assert seeds_to_decide(0.0, 0.01, 0.05, 0.0, None) is None


def losses(random: np.random.Generator, seeds: range, sd: float, level: float = 0.0) -> dict[int, float]:
    return {seed: 3.0 + level + 0.1 * seed + sd / math.sqrt(2) * float(random.standard_normal()) for seed in seeds}


def test_the_noise_is_what_was_planted_whatever_seeds_and_candidates_add() -> None:
    random = np.random.default_rng(0)
    earlier = [[losses(random, range(6), 0.01, level) for level in (0.0, 0.2, -0.1)] for _ in range(200)]
    noise = paired_sd(earlier)
    assert noise is not None
    assert noise[0] == pytest.approx(0.01, rel=0.05) and noise[1] == 200


def test_the_noise_is_that_of_common_seeds_and_twins_have_none() -> None:
    loss_by_seed = {1: 3.0, 2: 3.2, 3: 3.1}
    assert paired_sd([]) is None
    assert paired_sd([[loss_by_seed]]) is None
    assert paired_sd([[loss_by_seed, {3: 3.0, 4: 3.0}]]) is None, "a single pair"
    assert paired_sd([[loss_by_seed, dict(loss_by_seed)]]) is None, "the same runs twice"
    noise = paired_sd([[loss_by_seed, {1: 3.0, 2: 3.0, 5: 9.0}]])
    assert noise is not None and noise[0] == pytest.approx(np.std([0.0, 0.2], ddof=1)) and noise[1] == 1
