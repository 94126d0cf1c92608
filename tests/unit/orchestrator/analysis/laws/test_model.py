"""Scaling laws: planted coefficients come back, the intervals cover what they claim, the batched descent is scipy's."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.laws.model import (
    FORMS,
    Law,
    Observations,
    bootstrap,
    effective_tokens,
    fit,
    spread_of,
    stretched_interval,
)
from orchestrator.analysis.laws.records import FormName
from orchestrator.analysis.sequential import Array
from orchestrator.analysis.statistics import t_test
from tests.twins import scaling as reference

HOFFMANN = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Hoffmann et al., arXiv 2203.15556, equation 10."""


def law_losses(sizes: Array, tokens: Array, planted: dict[str, float]) -> Array:
    found = np.full(sizes.shape, planted.get("E", 0.0))
    if "A" in planted:
        found = found + planted["A"] * sizes ** -planted["alpha"]
    if "B" in planted:
        found = found + planted["B"] * tokens ** -planted["beta"]
    return found


def grid(planted: dict[str, float], noise: float = 0.0, seed: int = 0, repeats: int = 1) -> Observations:
    """Seven sizes from 40 M to 10 B at six budgets from 2 B to 300 B tokens."""
    cells = np.meshgrid(np.logspace(7.6, 10, 7), np.logspace(9.3, 11.5, 6))
    sizes, tokens = (np.repeat(each.ravel(), repeats) for each in cells)
    random = np.random.default_rng(seed)
    losses = law_losses(sizes, tokens, planted) * np.exp(random.normal(0, noise, sizes.size))
    return Observations(parameters=sizes, tokens=tokens, losses=losses)


def interval(law: Law, drawn: Law, name: str, n: int) -> tuple[float, float]:
    value, values = law.coefficients()[name], drawn.coefficients()[name]
    low, high = stretched_interval(float(value), values, n - law.form.size())
    assert low is not None and high is not None
    return low, high


@pytest.mark.parametrize(
    ("form", "planted"),
    [
        ("nd", HOFFMANN),
        ("n", {"E": 1.8, "A": 50.0, "alpha": 0.25}),
        ("n0", {"A": 12.0, "alpha": 0.08}),
        ("d", {"E": 1.5, "B": 400.0, "beta": 0.3}),
        ("d0", {"B": 9.0, "beta": 0.05}),
    ],
)
def test_planted_coefficients_come_back(form: FormName, planted: dict[str, float]) -> None:
    found = fit(FORMS[form], grid(planted)).coefficients()
    assert {name: float(value) for name, value in found.items()} == pytest.approx(planted, rel=1e-3)


def test_hoffmanns_law_lies_within_the_intervals_of_data_drawn_from_it() -> None:
    """0.2 % of noise on 42 runs; five intervals of 95 % hold together in most draws, and in this one."""
    runs = grid(HOFFMANN, noise=0.002, seed=3)
    law = fit(FORMS["nd"], runs)
    drawn = bootstrap(law, runs, 400, seed=0)
    for name, planted in HOFFMANN.items():
        low, high = interval(law, drawn, name, runs.losses.size)
        assert low <= planted <= high, name
        assert high - low < planted, name


def test_the_batched_descent_finds_the_minimum_that_scipy_finds() -> None:
    runs = grid(HOFFMANN, noise=0.003, seed=1)
    theta, value = reference.fit_both(runs.parameters, runs.tokens, runs.losses)
    found = {name: float(each) for name, each in fit(FORMS["nd"], runs).coefficients().items()}
    mine = [math.log(found["A"]), math.log(found["B"]), math.log(found["E"]), found["alpha"], found["beta"]]
    assert reference.objective(np.array(mine), runs.parameters, runs.tokens, runs.losses) <= value * (1 + 1e-6)
    assert found["alpha"] == pytest.approx(theta[3], abs=0.01)
    assert found["beta"] == pytest.approx(theta[4], abs=0.01)


def test_intervals_cover_the_planted_exponent() -> None:
    """120 data sets of 6 sizes × 3 seeds: 95 %, within four standard errors (2 % each)."""
    sizes = np.repeat(np.logspace(6, 9, 6), 3)
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(120):
        losses = law_losses(sizes, sizes, {"A": 12.0, "alpha": 0.08}) * np.exp(random.normal(0, 0.003, sizes.size))
        runs = Observations(parameters=sizes, tokens=20 * sizes, losses=losses)
        law = fit(FORMS["n0"], runs)
        low, high = interval(law, bootstrap(law, runs, 100, seed=0), "alpha", sizes.size)
        covered += low <= 0.08 <= high
    assert abs(covered / 120 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 120)


@settings(max_examples=5, deadline=None)
@given(st.floats(0.1, 10), st.floats(0.01, 100))
def test_units_change_nothing_but_coefficients(loss_unit: float, size_unit: float) -> None:
    """Losses in bits, parameters in millions: the exponent stays, E and A scale."""
    planted = {"E": 1.8, "A": 50.0, "alpha": 0.25}
    runs = grid(planted, noise=0.002)
    other = Observations(parameters=runs.parameters * size_unit, tokens=runs.tokens, losses=runs.losses * loss_unit)
    first, second = fit(FORMS["n"], runs).coefficients(), fit(FORMS["n"], other).coefficients()
    assert float(second["alpha"]) == pytest.approx(float(first["alpha"]), abs=2e-3)
    assert float(second["E"]) == pytest.approx(float(first["E"]) * loss_unit, rel=5e-3)


def test_without_noise_there_is_no_spread() -> None:
    runs = grid({"A": 12.0, "alpha": 0.08})
    law = fit(FORMS["n0"], runs)
    low, high = interval(law, bootstrap(law, runs, 50, seed=0), "alpha", runs.losses.size)
    assert high - low < 1e-6


def test_effective_tokens_are_those_of_the_law() -> None:
    law = fit(FORMS["nd"], grid(HOFFMANN))
    loss = float(law_losses(np.array([1e9]), np.array([5e10]), HOFFMANN)[0])
    assert float(effective_tokens(law, 1e9, loss)) == pytest.approx(5e10, rel=1e-2)
    assert np.isinf(effective_tokens(law, 1e9, 1.0)), "below E no amount of data is enough"
    with pytest.raises(ValueError, match="says nothing of tokens"):
        effective_tokens(fit(FORMS["n"], grid({"E": 1.8, "A": 50.0, "alpha": 0.25})), 1e9, 2.0)


@pytest.mark.parametrize("loss", [0.0, -1.0, math.nan, math.inf])
def test_a_loss_without_a_logarithm_is_refused(loss: float) -> None:
    runs = Observations(parameters=np.array([1e6, 1e7]), tokens=np.array([1e8, 1e9]), losses=np.array([loss, 2.0]))
    with pytest.raises(ValueError, match="leave out those that are not positive"):
        fit(FORMS["n0"], runs)


@pytest.mark.parametrize("losses", [[2.0] * 5, [3.0, 3.1, 2.9, 3.2, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 1, 1, 1, 1]])
def test_points_without_a_law_give_finite_numbers(losses: list[float]) -> None:
    """Constant, noisy, rising or a cliff: whatever comes out can be said in a sentence, and is no NaN."""
    sizes = np.logspace(6, 8, 5)
    runs = Observations(parameters=sizes, tokens=sizes, losses=np.array(losses))
    law = fit(FORMS["n"], runs)
    drawn = bootstrap(law, runs, 50, seed=0)
    for name, values in drawn.coefficients().items():
        assert np.isfinite(values).all(), name
        assert np.isfinite(law.coefficients()[name]), name


def test_an_interval_needs_degrees_of_freedom() -> None:
    drawn = np.random.default_rng(0).normal(size=1000)
    assert stretched_interval(0.0, drawn, 0) == (None, None)
    assert t_test(1.0, spread_of(drawn), 0) == (None, None, None)
    assert t_test(1.0, spread_of(np.ones(10)), 5) == (None, None, None)
    (_, wide), (_, narrow) = stretched_interval(0.0, drawn, 2), stretched_interval(0.0, drawn, 1000)
    assert wide is not None and narrow is not None
    assert wide / narrow == pytest.approx(4.303 / 1.962, rel=1e-2)
