"""Products with the gradient in TF32, emulated: how little they change, and that a Gram matrix is never in it."""

import pytest
import torch

from optim.adapm import AdaPM, AdaPMMini
from optim.adapm.low_rank import Factors, Momentum, gaussian_sketch
from optim.adapm.solvers import subspace
from tests.twins.narrow_products import BFLOAT16_BITS, TF32_BITS, cut_mantissa, emulate_products, narrowed
from worker.checks.tiny_models import tiny_gpt2, train


def test_a_mantissa_is_cut_to_its_bits():
    exact = torch.tensor([1.0 + 2**-10 + 2**-11, -3.0 - 2**-9 - 2**-10, 0.0, float("inf")])
    assert cut_mantissa(exact, TF32_BITS).tolist() == [1.0 + 2**-10, -3.0 - 2**-9, 0.0, float("inf")]
    cut = cut_mantissa(torch.randn(50), BFLOAT16_BITS)
    assert torch.equal(cut.bfloat16().float(), cut)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e5])
def test_three_products_in_tf32_are_as_exact_as_one_in_float32(scale):
    """Here their parts are cut off, where Triton rounds them."""
    draw = torch.Generator().manual_seed(0)
    rows, matrix = torch.randn(38, 768, generator=draw), scale * torch.randn(768, 200, generator=draw)
    exact = rows.double() @ matrix.double()
    missed = [
        float((product(rows, matrix).double() - exact).norm() / exact.norm())
        for product in (
            torch.matmul,
            narrowed(torch.matmul, TF32_BITS, in_parts=True),
            narrowed(torch.matmul, TF32_BITS),
        )
    ]
    assert missed[1] < 2.0 * max(missed[0], 2**-21)
    assert missed[2] > 2**-11


@pytest.mark.parametrize(("bits", "rounding"), [(TF32_BITS, 2**-10), (BFLOAT16_BITS, 2**-7)])
def test_factors_miss_as_much_of_the_momentum_and_their_rows_stay_orthonormal(bits, rounding):
    draw = torch.Generator().manual_seed(0)
    gradient = torch.randn(96, 8, generator=draw) @ torch.randn(8, 160, generator=draw)
    gradient += 0.1 * torch.randn(96, 160, generator=draw)
    carried = Factors(torch.zeros(96, 5), torch.zeros(5, 160))
    M = 0.1 * gradient
    solutions, residuals = [], []
    for precision in ("highest", "high"):
        with emulate_products(bits):
            (factors,) = subspace(
                [Momentum(gradient, carried, 0.9, precision)],
                iterations=2,
                fresh=True,
                sketches=[lambda: gaussian_sketch(0, 1, "block", carried.right)],
            )
        solutions.append(factors)
        residuals.append(((factors.left @ factors.right - M).norm() / M.norm()).item())
    assert residuals[1] == pytest.approx(residuals[0], rel=rounding)
    torch.testing.assert_close(solutions[1].left.mT @ solutions[1].left, torch.eye(5), rtol=0.0, atol=1e-5)
    apart = ((solutions[1].right - solutions[0].right).norm() / solutions[0].right.norm()).item()
    assert rounding / 100 < apart < 10 * rounding


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_a_training_in_tf32_goes_where_one_in_float32_goes(cls):
    """And on a CPU, which has no TF32, it takes the same steps to the bit."""
    exact, narrow, on_a_cpu = tiny_gpt2(), tiny_gpt2(), tiny_gpt2()
    start = [value.detach().clone() for value in exact.parameters()]
    losses = train(exact, cls.for_model(exact, 1e-3), range(20))
    with emulate_products(TF32_BITS):
        close = train(narrow, cls.for_model(narrow, 1e-3, matmul_precision="high"), range(20))
    assert close == pytest.approx(losses, rel=1e-2)
    train(on_a_cpu, cls.for_model(on_a_cpu, 1e-3, matmul_precision="high"), range(20))
    ends = [[value.detach() for value in model.parameters()] for model in (exact, narrow, on_a_cpu)]
    assert all(torch.equal(weight, same) for weight, same in zip(ends[0], ends[2], strict=True))
    gone = sum(float((weight - first).square().sum()) for weight, first in zip(ends[0], start, strict=True))
    apart = sum(float((weight - other).square().sum()) for weight, other in zip(ends[0], ends[1], strict=True))
    assert 0.0 < (apart / gone) ** 0.5 < 0.05
