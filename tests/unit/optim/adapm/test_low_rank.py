"""The factor solvers: optimal, harmless on degenerate input, and never needing M."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from optim.adapm.low_rank import (
    Factors,
    Momentum,
    gaussian_sketch,
    mixed_factors,
    mixture,
    orthonormal_rows,
)
from optim.adapm.solvers import SOLVERS

BETA1 = 0.9

sizes = st.integers(min_value=1, max_value=24)


def sketch_for(carried: Factors) -> Tensor:
    return gaussian_sketch(0, 1, "block", carried.right)


def solve(solver: str, gradient: Tensor, carried: Factors, *, iterations: int = 1, fresh: bool = False) -> Factors:
    momentum, sketch = Momentum(gradient, carried, BETA1), sketch_for(carried)
    (solution,) = SOLVERS[solver]([momentum], iterations=iterations, fresh=fresh, sketches=[sketch])
    return solution


def zeros(rows: int, columns: int, rank: int) -> Factors:
    return Factors(torch.zeros(rows, rank, dtype=torch.float64), torch.zeros(rank, columns, dtype=torch.float64))


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def momentum(gradient: Tensor, carried: Factors) -> Tensor:
    return (1 - BETA1) * gradient + BETA1 * carried.left @ carried.right


def dimension(basis: Tensor) -> int:
    """Return the number of orthonormal rows, if all others are zeros."""
    gram = basis @ basis.mT
    lengths = gram.diagonal().round()
    torch.testing.assert_close(gram, lengths.diag(), rtol=0.0, atol=1e-5)
    assert not basis[lengths == 0.0].any()
    return int(lengths.sum())


@settings(deadline=None, max_examples=50)
@given(rows=sizes, columns=sizes, share=st.floats(0.01, 1.0), seed=st.integers(0, 10**6))
def test_the_svd_is_the_best_and_many_subspace_iterations_reach_it_on_every_shape(rows, columns, share, seed):
    """But for directions of 1e-3 of the largest or less, which `subspace` leaves out."""
    rank = max(1, round(share * min(rows, columns)))
    carried = Factors(draw(seed, rows, rank), draw(seed + 1, rank, columns))
    gradient = draw(seed + 2, rows, columns)
    target = momentum(gradient, carried)
    values = torch.linalg.svdvals(target)
    best = torch.linalg.norm(values[rank:])
    exact = solve("svd", gradient, carried)
    factors = solve("subspace", gradient, carried, iterations=60)
    scale = torch.linalg.norm(target)
    assert torch.linalg.norm(exact.left @ exact.right - target) <= best + 1e-10 * scale
    best_of_strong = torch.linalg.norm(values[min(rank, int((values > 1e-3 * values[0]).sum())) :])
    assert torch.linalg.norm(factors.left @ factors.right - target) <= 1.05 * best_of_strong + 1e-10 * scale
    assert exact.left.shape == factors.left.shape == (rows, rank)
    assert exact.right.shape == factors.right.shape == (rank, columns)


@settings(deadline=None, max_examples=50)
@given(rows=sizes, columns=sizes, share=st.floats(0.01, 1.0), true_rank=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_a_rank_deficient_or_zero_momentum_is_found_exactly(rows, columns, share, true_rank, seed):
    rank = max(1, round(share * min(rows, columns)))
    gradient = draw(seed, rows, true_rank) @ draw(seed + 1, true_rank, columns)
    carried = zeros(rows, columns, rank)
    factors = solve("subspace", gradient, carried, fresh=True)
    assert factors.left.isfinite().all()
    assert factors.right.isfinite().all()
    assert dimension(factors.left.mT) == min(rank, true_rank)
    if rank >= true_rank:
        torch.testing.assert_close(factors.left @ factors.right, momentum(gradient, carried), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-18, 1e-9, 1.0, 1e9])
def test_the_factors_scale_with_the_gradient_in_float32(scale):
    """Algorithm 2's gradient descent does not: its step has a fixed size."""
    gradient, carried = draw(0, 40, 30).float(), Factors(*(factor.float() for factor in zeros(40, 30, 4)))
    unit = solve("subspace", gradient, carried, fresh=True)
    factors = solve("subspace", gradient * scale, carried, fresh=True)
    torch.testing.assert_close((factors.left @ factors.right) / scale, unit.left @ unit.right, rtol=1e-4, atol=1e-4)


def test_one_warm_started_iteration_a_step_follows_a_turning_subspace():
    """Within 1 % of the exact solver's residual, over 50 steps of drifting gradients."""
    left, right = draw(0, 40, 3), draw(1, 3, 60)
    warm = exact = zeros(40, 60, 3)
    for step in range(50):
        left = left + 0.1 * draw(10 + step, 40, 3)
        gradient = left @ right + 0.3 * draw(100 + step, 40, 60)
        warm_target, exact_target = momentum(gradient, warm), momentum(gradient, exact)
        warm, exact = solve("subspace", gradient, warm, fresh=step == 0), solve("svd", gradient, exact)
    warm_residual = torch.linalg.norm(warm.left @ warm.right - warm_target)
    exact_residual = torch.linalg.norm(exact.left @ exact.right - exact_target)
    assert warm_residual < 1.01 * exact_residual


@pytest.mark.parametrize(("size", "directions"), [(1e-2, 8), (1e-6, 2)])
def test_columns_that_nearly_depend_on_each_other_give_a_basis_of_what_is_more_than_rounding(size, directions):
    gradient = draw(0, 64, 2) @ draw(1, 2, 48) + size * draw(2, 64, 48)
    factors = solve("subspace", gradient.float(), Factors(torch.zeros(64, 8), torch.zeros(8, 48)), fresh=True)
    assert dimension(factors.left.mT) == directions


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_shows_in_the_factors_without_an_exception(solver, bad):
    gradient = draw(0, 10, 12)
    gradient[3, 4] = bad
    factors = solve(solver, gradient, Factors(draw(1, 10, 2), draw(2, 2, 12)))
    assert not (factors.left @ factors.right).isfinite().all()


@settings(deadline=None)
@given(beta1=st.floats(0.0, 0.99), step=st.none() | st.integers(1, 500), seed=st.integers(0, 10**6))
def test_the_closed_form_is_the_paper_s_correction(beta1, step, seed):
    """m^c = M - c (L R - M), over 1 - b1^t where the moments are debiased."""
    gradient, carried = draw(seed, 7, 9), Factors(draw(seed + 1, 7, 2), draw(seed + 2, 2, 9))
    current = Factors(draw(seed + 3, 7, 2), draw(seed + 4, 2, 9))
    weights = mixture(beta1, bias_correction=True, debias_at=step)
    left, right = mixed_factors(carried, current, weights)
    correction = weights.gradient * gradient + left @ right

    target = (1 - beta1) * gradient + beta1 * carried.left @ carried.right
    residual = current.left @ current.right - target
    past = beta1 / (1 - beta1) if step is None else sum(beta1**i for i in range(1, step))
    expected = (target - past * residual) / (1.0 if step is None else 1 - beta1**step)
    torch.testing.assert_close(correction, expected, rtol=1e-8, atol=1e-8)


def test_without_correction_only_the_current_factors_count():
    weights = mixture(0.9, bias_correction=False)
    assert (weights.gradient, weights.carried, weights.current) == (0.0, 0.0, 1.0)


def test_a_sketch_depends_on_seed_step_and_block_alone():
    like = torch.empty(3, 50, dtype=torch.float64)
    torch.manual_seed(1)
    sketch = gaussian_sketch(0, 1, "a", like)
    torch.manual_seed(2)
    assert torch.equal(sketch, gaussian_sketch(0, 1, "a", like))
    for other in (gaussian_sketch(1, 1, "a", like), gaussian_sketch(0, 2, "a", like), gaussian_sketch(0, 1, "b", like)):
        assert not torch.equal(sketch, other)
    assert sketch.dtype is torch.float64
    assert abs(sketch.mean().item()) < 0.3
    assert sketch.std().item() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("fresh", [False, True])
def test_batches_of_several_shapes_get_together_what_each_gets_alone(fresh):
    """A batch of two blocks, a single block and a batch that has weak rows and a block of zeros."""
    shapes = [((2,), 40, 30), ((), 12, 50), ((3,), 9, 8)]
    momenta = [
        Momentum(
            draw(3 * k, *batch, m, n), Factors(draw(3 * k + 1, *batch, m, 4), draw(3 * k + 2, *batch, 4, n)), BETA1
        )
        for k, (batch, m, n) in enumerate(shapes)
    ]
    momenta[2].carried.right[0, 1:3] *= 1e-5
    momenta[2].carried.right[1] = 0.0
    sketches = [draw(90 + k, 4, n) for k, (_, _, n) in enumerate(shapes)]
    options = {"iterations": 2, "fresh": fresh}
    if fresh:
        sketches = [draw(90 + k, *batch, 4, n) for k, (batch, _, n) in enumerate(shapes)]
    solutions = SOLVERS["subspace"](momenta, **options, sketches=sketches)
    for solution, momentum, sketch in zip(solutions, momenta, sketches, strict=True):
        (twin,) = SOLVERS["subspace"]([momentum], **options, sketches=[sketch])
        torch.testing.assert_close(solution.left @ solution.right, twin.left @ twin.right, rtol=0.0, atol=1e-12)


def test_degenerate_blocks_are_harmless_and_leave_the_zero_start():
    """Dependent rows, zero and not-a-number, beside a healthy block of the same batch."""
    gradient = draw(0, 4, 40, 30).float()
    gradient[1] = (draw(1, 40, 2) @ draw(2, 2, 30)).float()
    gradient[2] = 0.0
    gradient[3, 5, 6] = torch.nan
    carried = Factors(torch.zeros(4, 40, 5), torch.zeros(4, 5, 30))
    reference = solve("subspace", gradient[0], Factors(carried.left[0], carried.right[0]), fresh=False)
    factors = solve("subspace", gradient, carried, fresh=False)
    product = factors.left @ factors.right
    torch.testing.assert_close(factors.left[:3].isfinite(), torch.ones(3, 40, 5, dtype=torch.bool))
    assert reference.right.any() and factors.right[0].any()
    torch.testing.assert_close(product[1], (1 - BETA1) * gradient[1], rtol=0.0, atol=1e-5)
    assert not product[2].any()
    assert not product[3].isfinite().all()
    assert [dimension(left.mT) for left in factors.left[:3]] == [5, 2, 0]


def basis_of(rows: Tensor) -> Tensor:
    (basis,) = orthonormal_rows([rows], [lambda part: part.double() @ part.double().mT], [()])
    return basis


HARD: dict[str, tuple[Tensor, int]] = {
    "zero": (torch.zeros(3, 50), 0),
    "denormal": (torch.full((3, 50), 1e-42), 0),
    "squares underflow": (draw(0, 3, 50).float() * 1e-24, 3),
    "squares are denormal": (draw(0, 3, 50).float() * 1e-20, 3),
    "squares overflow": (draw(0, 3, 50).float() * 1e30, 3),
    "the largest numbers": (draw(0, 3, 50).float().sign() * 3e38, 3),
    "all sizes": (draw(0, 3, 50).float() * torch.tensor([[1e-25], [1.0], [1e25]]), 3),
    "one is zero": (draw(0, 3, 50).float() * torch.tensor([[1.0], [0.0], [1.0]]), 2),
    "all alike": (torch.ones(3, 50), 1),
    "one depends on two": (torch.eye(3, 50)[[0, 1, 1, 2]] + torch.eye(50)[[0, 0, 1, 2]], 3),
    "unit vectors alike": (torch.eye(50)[[7, 7, 7]], 1),
    "a single row": (draw(0, 1, 50).float() * 1e-30, 0),
    "a single number": (torch.full((1, 1), -1e-25), 1),
    "as many as they are long": (torch.ones(4, 4), 1),
}
"""Rows, and how many directions they span; those below 3.5e-29 have none."""


@pytest.mark.parametrize(("rows", "directions"), HARD.values(), ids=HARD)
def test_rows_of_any_size_get_an_orthonormal_basis_of_their_span(rows, directions):
    """Alone, and beside a healthy block and one that is not a number, whose bits do not depend on them."""
    basis = basis_of(rows)
    assert dimension(basis) == directions
    lengths = rows.double().norm(dim=-1, keepdim=True)
    unit = torch.where(lengths > 3.5e-29, rows.double() / lengths, 0.0)
    torch.testing.assert_close(unit @ basis.double().mT @ basis.double(), unit, rtol=0.0, atol=1e-4)
    healthy = torch.eye(rows.shape[1])[: len(rows)] + 0.1
    batch = basis_of(torch.stack((rows, healthy, torch.full_like(rows, torch.nan))))
    reference = basis_of(healthy)
    torch.testing.assert_close(batch[1], reference, rtol=0.0, atol=1e-6)
    assert dimension(batch[0]) == directions and batch[2].isnan().all()


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("scale", [1e-42, 1e-36, 1e-30, 1e-24, 1e-18, 1e12, 1e18])
def test_carried_factors_of_any_size_are_taken_up_or_dropped_but_never_spoil_a_block(solver, scale):
    """An idle block's momentum before its gradient comes back; and one that shrinks or has exploded."""
    carried = Factors(draw(1, 40, 4).float(), scale * draw(2, 4, 30).float())
    final_gradient = draw(4, 40, 4).float() @ draw(5, 4, 30).float()
    for gradient in (torch.zeros(40, 30), scale * draw(3, 40, 30).float(), final_gradient):
        factors = solve(solver, gradient, carried, iterations=5)
        size = momentum(gradient, carried).abs().max()
        assert (factors.left @ factors.right).abs().max() <= 2.0 * size
    if scale < 1e-6:  # what came back has rank 4 and is all there is
        missed = torch.linalg.norm(factors.left @ factors.right - (1 - BETA1) * final_gradient)
        assert missed < 0.01 * torch.linalg.norm((1 - BETA1) * final_gradient)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("rank", [1, 4])
def test_a_block_that_had_one_direction_takes_up_others_at_once(solver, rank):
    """Its factors have no rows that stay parallel, or zero, until the next refresh."""
    carried = zeros(40, 30, 4)
    gradient = torch.zeros(40, 30, dtype=torch.float64)
    gradient[3, 5] = 1.0
    for step in range(5):
        carried = solve(solver, gradient, carried, iterations=5, fresh=step == 0)
    later = draw(1, 40, rank) @ draw(2, rank, 30)
    for _ in range(30):
        carried = solve(solver, later, carried, iterations=5)
    assert torch.linalg.norm(carried.left @ carried.right - later) < 0.1 * torch.linalg.norm(later)
