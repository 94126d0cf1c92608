"""`scaled_gd`: its literal twin, that it makes nothing worse, and what is wrong with algorithm 2."""

from functools import partial

import pytest
import torch
from torch import Tensor

from optim.adapm import devices, solvers
from optim.adapm.low_rank import Factors, Momentum, Sketch
from optim.adapm.solvers import step_size
from tests.twins import descent

pytestmark = pytest.mark.usefixtures("branch")

BETA1 = 0.9


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def momentum_of(scale: float = 1.0, *batch: int) -> Momentum:
    carried = Factors(scale**0.5 * draw(1, *batch, 20, 3), scale**0.5 * draw(2, *batch, 3, 30))
    return Momentum(scale * draw(0, *batch, 20, 30), carried, BETA1)


def refuse() -> Tensor:
    """No sketch is taken here. On an accelerator one is always drawn: there, any use of it would show."""
    assert devices.is_simulated(), "nothing asks for a sketch here"
    return torch.full((), torch.nan)


def scaled_gd(momentum: Momentum, *, iterations: int, fresh: bool, sketch: Sketch) -> Factors:
    (found,) = solvers.scaled_gd([momentum], iterations=iterations, fresh=fresh, sketches=[sketch])
    return found


def residual(factors: Factors, momentum: Momentum) -> float:
    target = momentum.dense()
    return float(torch.linalg.norm(factors.left @ factors.right - target) / torch.linalg.norm(target))


def test_the_steps_fall_from_one_by_a_cosine():
    assert [step_size(k, 5) for k in range(5)] == pytest.approx([1.0, 0.9045, 0.6545, 0.3455, 0.0955], abs=1e-4)


@pytest.mark.parametrize("iterations", [1, 5])
def test_it_is_its_literal_twin(iterations):
    momentum = momentum_of()
    found = scaled_gd(momentum, iterations=iterations, fresh=False, sketch=refuse)
    left, right = descent.scaled(momentum.dense(), *momentum.carried, K=iterations)
    torch.testing.assert_close(found.left @ found.right, left @ right, rtol=1e-8, atol=1e-8)


def test_fresh_it_starts_from_a_sketch_and_the_left_factor_that_suits_it():
    momentum, start = momentum_of(), draw(5, 3, 30)
    found = scaled_gd(momentum, iterations=5, fresh=True, sketch=lambda: start)
    left, right = descent.scaled(momentum.dense(), descent.best_left(momentum.dense(), start), start)
    torch.testing.assert_close(found.left @ found.right, left @ right, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
def test_it_is_scale_free(scale):
    unit, scaled = momentum_of(), momentum_of(scale)
    expected = residual(scaled_gd(unit, iterations=5, fresh=False, sketch=refuse), unit)
    found = residual(scaled_gd(scaled, iterations=5, fresh=False, sketch=refuse), scaled)
    assert found == pytest.approx(expected, rel=1e-6)


def test_more_iterations_never_make_it_worse():
    momentum = momentum_of()
    start = residual(momentum.carried, momentum)
    after = residual(scaled_gd(momentum, iterations=5, fresh=False, sketch=refuse), momentum)
    longer = residual(scaled_gd(momentum, iterations=50, fresh=False, sketch=refuse), momentum)
    assert longer < after < start


def test_algorithm_2_as_printed_never_leaves_its_start_and_is_not_scale_free():
    M = momentum_of().dense()
    L, R = descent.as_printed(M, torch.zeros(20, 3).double(), torch.zeros(3, 30).double())
    assert not L.any() and not R.any()
    small = momentum_of(1e-4)
    found = Factors(*descent.as_printed(small.dense(), *small.carried))
    working = scaled_gd(small, iterations=5, fresh=False, sketch=refuse)
    assert residual(found, small) > 0.98 * residual(small.carried, small)
    assert residual(working, small) < 0.9 * residual(small.carried, small)


def test_a_batch_is_its_blocks_one_by_one():
    together = momentum_of(1.0, 4)
    starts = draw(9, 4, 3, 30)
    together.carried.left[2], together.carried.right[2] = 0.0, 0.0
    found = scaled_gd(together, iterations=5, fresh=False, sketch=lambda: starts)
    for index in range(4):
        alone = Momentum(together.gradient[index], Factors(*(part[index] for part in together.carried)), BETA1)
        expected = scaled_gd(alone, iterations=5, fresh=False, sketch=partial(starts.__getitem__, index))
        torch.testing.assert_close(found.left[index] @ found.right[index], expected.left @ expected.right)


def test_zero_gradients_are_harmless():
    nothing = Momentum(torch.zeros(20, 30), Factors(torch.zeros(20, 3), torch.zeros(3, 30)), BETA1)
    found = scaled_gd(nothing, iterations=5, fresh=True, sketch=lambda: draw(1, 3, 30).float())
    assert not (found.left @ found.right).any()
    again = scaled_gd(
        Momentum(nothing.gradient, found, BETA1), iterations=5, fresh=False, sketch=lambda: draw(1, 3, 30).float()
    )
    assert not (again.left @ again.right).any()
