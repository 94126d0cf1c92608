"""Bounds of convex functions, against linear programs that look for the worst of them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrator.kinds.convex import FROM_FAR_DRAWS, Array, ConvexFunction, Gap, convex_function, fit
from scipy.optimize import linprog, minimize

gaps = st.lists(st.floats(0.2, 1.5), min_size=2, max_size=5)
bends = st.lists(st.floats(0.05, 2.0), min_size=6, max_size=6)


def points(steps: list[float], bent: list[float], tilt: float) -> tuple[Array, Array]:
    """Of a convex function, at places so far apart, whose slope grows by so much at each."""
    at = np.concatenate([[0.0], np.cumsum(steps)])
    slopes = tilt + np.cumsum(bent[: len(steps)])
    return at, np.concatenate([[0.0], np.cumsum(slopes * np.array(steps))])


def function(at: Array, values: Array, end: float | None = None, runs: int = 1) -> ConvexFunction:
    return convex_function(at, values, np.full(len(at), float(runs)), 0.0, end)


def worst_gap(at: Array, values: Array, place: float, parts: int = 12) -> float:
    """The readable twin: over all convex functions on a fine grid of places that go through the points, the most that
    the value at one place exceeds another's."""
    fine = np.unique(np.concatenate([*(np.linspace(a, b, parts) for a, b in pairwise(at)), [place]]))
    convex = np.zeros((len(fine) - 2, len(fine)))
    for row, (a, b, c) in enumerate(zip(fine, fine[1:], fine[2:], strict=False)):
        convex[row, row : row + 3] = -1 / (b - a), 1 / (b - a) + 1 / (c - b), -1 / (c - b)
    through = np.array([fine == each for each in at], dtype=float)
    here = np.flatnonzero(fine == place)[0]
    worst = 0.0
    for other in range(len(fine)):
        cost = np.zeros(len(fine))
        cost[other] += 1.0
        cost[here] -= 1.0
        found = linprog(cost, convex, np.zeros(len(convex)), through, values, bounds=(None, None))
        worst = max(worst, -found.fun)
    return worst


@settings(max_examples=25)
@given(gaps, bends, st.floats(-4.0, 0.0), st.floats(0.01, 0.99))
def test_no_convex_function_falls_farther_than_the_gap_and_one_falls_as_far(
    steps: list[float], bent: list[float], tilt: float, share: float
) -> None:
    at, values = points(steps, bent, tilt)
    place = float(at[0] + share * (at[-1] - at[0]))
    bound = function(at, values).gap(place, 0.0).middle
    found = worst_gap(at, values, place)
    assert found <= bound + 1e-6
    # Beside a point a function may be as low as the bound; the grid has its next place a twelfth of a step away.
    steepest = float(np.abs(np.diff(values) / np.diff(at)).max())
    assert bound <= found + 2 * steepest * max(steps) / 11 + 1e-6


@given(gaps, bends, st.floats(-4.0, 0.0))
def test_points_of_a_convex_function_are_fitted_as_they_are(steps: list[float], bent: list[float], tilt: float) -> None:
    at, values = points(steps, bent, tilt)
    assert fit(at, values, np.ones_like(at)) == pytest.approx(values, abs=1e-9)


@settings(max_examples=30)
@given(
    gaps, st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6), st.lists(st.integers(1, 5), min_size=6, max_size=6)
)
def test_the_fit_is_that_of_an_independent_optimizer(steps: list[float], means: list[float], runs: list[int]) -> None:
    at, _ = points(steps, [1.0] * 6, 0.0)
    values, weights = np.array(means[: len(at)]), np.array(runs[: len(at)], dtype=float)
    convex = {"type": "ineq", "fun": lambda f: np.diff(np.diff(f) / np.diff(at))}
    found = fit(at, values, weights)
    twin = minimize(
        lambda f: float(weights @ (f - values) ** 2), np.full(len(at), values.mean()), method="SLSQP",
        constraints=[convex], options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    assert (np.diff(np.diff(found) / np.diff(at)) >= -1e-9).all()
    assert float(weights @ (found - values) ** 2) <= twin.fun + 1e-6


def test_a_parabolas_minimum_is_missed_least_near_its_lowest_point() -> None:
    for lowest in (-0.4, 0.0, 0.3):
        at = np.arange(-2.0, 3.0)
        assert function(at, (at - lowest) ** 2).best_place(0.0) == pytest.approx(lowest, abs=0.06)


def test_towards_an_end_the_function_goes_on_as_it_fell() -> None:
    at = np.array([-2.0, -1.0, 0.0])
    assert function(at, -0.1 * at, end=0.5).gap(0.0, 0.0).middle == pytest.approx(0.05)
    assert function(at, -0.1 * at, end=0.5).gap(-0.6, 0.0).middle == pytest.approx(0.11)


def test_beyond_the_points_the_value_goes_on_as_it_rose() -> None:
    at = np.array([-1.0, 0.0])
    assert function(at, -0.1 * at, end=0.5).gap(-2.0, 0.0).middle == pytest.approx(0.25)


def test_where_a_loss_levels_off_it_bounds_nothing() -> None:
    """Far above its best rate a loss stays at that of an untrained model: this is no convex function."""
    at = np.arange(-2.0, 4.0)
    rising = np.array([0.4, 0.1, 0.0, 0.1, 2.0, 2.1])
    found = function(at, rising)
    assert list(found.at) == [-2, -1, 0, 1, 2]
    assert list(found.values) == pytest.approx(rising[:-1])
    noisy = convex_function(at, rising, np.full(6, 3.0), 4.0)
    assert len(noisy.at) == 6, "within the noise it may be convex"


def test_noise_opens_more_and_runs_close_it() -> None:
    at = np.arange(-2.0, 3.0)

    def gap(runs: int, variance: float) -> float:
        return function(at, 0.003 * at**2, runs=runs).gap(0.0, variance).extension(0.0, 1.0)

    assert gap(1, 0.0) == pytest.approx(0.0015)
    assert gap(1, 1e-5) > gap(3, 1e-5) > gap(30, 1e-5) > gap(1, 0.0)
    assert gap(3, 3e-5) == pytest.approx(gap(1, 1e-5))


def test_beside_an_estimate_a_gap_counts_as_far_as_both_are_unsure_together() -> None:
    """Of two normal errors the sum is as often too small as half of an interval says that is one of so many."""
    random = np.random.default_rng(0)
    sums = 0.3 * random.standard_normal(400_000) + 0.4 * random.standard_normal(400_000)
    for quantile, share in ((1.959964, 0.025), (2.772921, 0.00278)):
        reach = 0.3 * quantile + Gap(middle=0.1, error=0.4).extension(0.3 * quantile, quantile) - 0.1
        assert float(np.mean(sums > reach)) == pytest.approx(share, rel=0.1)
    assert Gap(middle=0.1, error=0.0).extension(0.3, 2.0) == pytest.approx(0.1), "sure: all of it"
    assert Gap(middle=0.1, error=0.2).extension(0.0, 2.0) == pytest.approx(0.5), "nothing else is unsure"


def test_the_error_of_a_gap_is_that_of_the_draws_of_its_function() -> None:
    """A parabola at its lowest point, against the gaps of 2,000 others through the points with other draws of noise."""
    at, noise, random = np.arange(-2.0, 3.0), 0.01, np.random.default_rng(1)
    values = 0.05 * at**2
    moved = values + noise / 2 * random.standard_normal((2000, 5))
    drawn = [function(at, each).gap(0.0, 0.0).middle for each in moved]
    middle, far = np.quantile(drawn, (0.5, 0.95))
    found = function(at, values, runs=4).gap(0.0, noise**2)
    assert found.middle == pytest.approx(middle, rel=0.05)
    assert found.error == pytest.approx(FROM_FAR_DRAWS * (far - middle), rel=0.2)


def test_the_open_interval_is_the_one_that_may_be_lowest() -> None:
    """A kink at 0.6: the chords meet there."""
    at = np.arange(-2.0, 4.0)
    low, high, place = function(at, np.maximum(-0.02 * (at - 0.6), 0.4 * (at - 0.6))).open_interval(0.0)
    assert (low, high) == (0.0, 1.0)
    assert place == pytest.approx(0.6)
