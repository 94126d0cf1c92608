"""Scaling laws: planted coefficients come back, the minimum is the plain twin's, intervals cover what they claim."""

import math

import numpy as np
import pytest

from orchestrator.analysis.laws.model import FORMS, Cell, Law, fit, interval
from orchestrator.analysis.laws.records import FormName
from orchestrator.analysis.sequential import Array
from orchestrator.analysis.statistics import t_quantile
from tests.twins import scaling as twin

HOFFMANN = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Hoffmann et al., arXiv 2203.15556, equation 10."""
CELLS: list[Cell] = [(round(n), round(d)) for n in np.logspace(7.6, 10, 7) for d in np.logspace(9.3, 11.5, 6)]


def law_losses(cells: list[Cell], planted: dict[str, float], noise: float = 0.0, seed: int = 0) -> Array:
    n, d = np.array(cells, dtype=np.float64).T
    losses = np.full(len(cells), planted.get("E", 0.0))
    if "A" in planted:
        losses += planted["A"] * n ** -planted["alpha"]
    if "B" in planted:
        losses += planted["B"] * d ** -planted["beta"]
    return losses * np.exp(np.random.default_rng(seed).normal(0, noise, len(cells)))


def fitted(form: FormName, cells: list[Cell], losses: Array, draws: int = 0) -> tuple[Law, Law]:
    return fit(FORMS[form], cells, losses.tolist(), draws)


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
    law, _ = fitted(form, CELLS, law_losses(CELLS, planted))
    assert {name: float(value) for name, value in law.coefficients().items()} == pytest.approx(planted, rel=1e-3)


def test_the_fit_is_the_plain_twins() -> None:
    """The same objective, written down as in the paper and minimised by L-BFGS from each start."""
    losses = law_losses(CELLS, HOFFMANN, noise=0.003, seed=1)
    n, d = np.array(CELLS, dtype=np.float64).T
    theta, value = twin.fit_both(n, d, losses)
    law, _ = fitted("nd", CELLS, losses)
    estimates = {name: float(coefficient) for name, coefficient in law.coefficients().items()}
    parameters = [
        math.log(estimates["A"]),
        math.log(estimates["B"]),
        math.log(estimates["E"]),
        estimates["alpha"],
        estimates["beta"],
    ]
    assert twin.objective(np.array(parameters), n, d, losses) <= value * (1 + 1e-6)
    assert estimates["alpha"] == pytest.approx(theta[3], abs=0.01)
    assert estimates["beta"] == pytest.approx(theta[4], abs=0.01)


def test_one_cell_far_off_moves_the_law_little() -> None:
    """Huber's loss: a loss 10 % too high among seven weighs as much as one 0.1 % off."""
    cells = [(round(n), round(20 * n)) for n in np.logspace(6, 9, 7)]
    losses = law_losses(cells, {"A": 12.0, "alpha": 0.08})
    losses[3] *= 1.1
    law, _ = fitted("n0", cells, losses)
    assert float(law.coefficients()["alpha"]) == pytest.approx(0.08, abs=0.001)


def test_the_same_cells_give_the_same_draws_and_those_without_noise_no_spread() -> None:
    losses = law_losses(CELLS, {"A": 12.0, "alpha": 0.08}, noise=0.002)
    first, second = (fitted("n0", CELLS, losses, draws=5)[1].theta for _ in range(2))
    assert np.array_equal(first, second)
    _, drawn = fitted("n0", CELLS, law_losses(CELLS, {"A": 12.0, "alpha": 0.08}), draws=20)
    assert float(np.ptp(drawn.coefficients()["alpha"])) < 1e-6


def test_an_interval_of_normal_draws_is_the_t_interval() -> None:
    """Of more comparisons and with the validation text's error it is wider; without a bound of draws it is open."""
    draws = 1.0 + np.random.default_rng(0).standard_normal(100_000)
    low, high = interval(1.0, draws, 4)
    assert (low, high) == pytest.approx((1 - t_quantile(4, 0.975), 1 + t_quantile(4, 0.975)), rel=0.02)
    assert interval(1.0, draws, 4, comparisons=3)[1] == pytest.approx(1 + t_quantile(4, 1 - 0.05 / 6), rel=0.02)
    assert interval(1.0, draws, 4, shared_error=3.0)[1] == pytest.approx(1 + math.hypot(2.776, 1.96 * 3), rel=0.02)
    assert interval(1.0, np.where(draws > 2, np.inf, draws), 4)[1] is None
    assert interval(1.0, draws, 0) == (None, None)


@pytest.mark.parametrize("loss", [0.0, -1.0, math.nan, math.inf])
def test_a_loss_without_a_logarithm_is_refused(loss: float) -> None:
    with pytest.raises(ValueError, match="leave out those that are not positive"):
        fit(FORMS["n0"], [(10**6, 10**8), (10**7, 10**9)], [loss, 2.0], 0)


@pytest.mark.parametrize("losses", [[2.0] * 5, [3.0, 3.1, 2.9, 3.2, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 1, 1, 1, 1]])
def test_points_without_a_law_give_finite_numbers(losses: list[float]) -> None:
    """Constant, noisy, rising or a cliff: whatever comes out can be said in a sentence, and is no NaN."""
    law, drawn = fitted("n", [(round(n), round(n)) for n in np.logspace(6, 8, 5)], np.array(losses), draws=30)
    for name, values in drawn.coefficients().items():
        assert np.isfinite(values).all(), name
        assert np.isfinite(law.coefficients()[name]), name
