"""What is wrong with the paper's algorithm 2, and what `subspace` finds from the same start."""

import torch
from torch import Tensor

from optim.adapm.low_rank import Factors, Momentum
from optim.adapm.solvers import subspace
from tests.twins import descent


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def residual(factors: Factors, momentum: Momentum) -> float:
    target = momentum.dense()
    return float(torch.linalg.norm(factors.left @ factors.right - target) / torch.linalg.norm(target))


def test_algorithm_2_as_printed_never_leaves_its_start_and_is_not_scale_free():
    carried = Factors(0.01 * draw(1, 20, 3), 0.01 * draw(2, 3, 30))
    small = Momentum(1e-4 * draw(0, 20, 30), carried, 0.9)
    L, R = descent.as_printed(small.dense(), torch.zeros(20, 3).double(), torch.zeros(3, 30).double())
    assert not L.any() and not R.any()
    factors = Factors(*descent.as_printed(small.dense(), *carried))
    (working,) = subspace([small], iterations=1, fresh=False, sketches=[draw(3, 3, 30)])
    assert residual(factors, small) > 0.98 * residual(carried, small)
    assert residual(working, small) < 0.9 * residual(carried, small)
