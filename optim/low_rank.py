"""Factor solvers: keep the momentum of an m × n block as L R, with L m × r and R r × n.

One step of the carried momentum is (paper, algorithm 1, lines 4 and 5)

    M    = (1 - b1) G + b1 L' R'          G the gradient, L' R' the factors of the step before
    L, R = argmin || L R - M ||_F         of rank r

`subspace` never forms M: it needs only products of M with thin matrices,

    M X^T = (1 - b1) G X^T + b1 L' (R' X^T)        Q^T M = (1 - b1) Q^T G + b1 (Q^T L') R'

so the gradient is the only full-size operand. `mixed_factors` turns old and new factors into the update's numerator,
the bias-corrected momentum, by one GEMM of inner size 2r.

The paper's own solver (its algorithm 2, plain gradient descent) cannot leave its stated start L = R = 0, where the
gradient of both factors vanishes, and its step is not scale-free; neither solver here has that trap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Sketch = Callable[[], Tensor]
"""Draws a fresh r × n start; called only where one is needed."""


class Factors(NamedTuple):
    """A momentum of rank r."""

    left: Tensor
    """L, m × r."""
    right: Tensor
    """R, r × n."""

    def transposed(self) -> "Factors":
        """The factors of (L R)^T."""
        return Factors(self.right.mT, self.left.mT)


class Solver(Protocol):
    """Finds the factors of M = (1 - b1) G + b1 L' R', from G (m × n) and the carried L' and R'."""

    def __call__(
        self, gradient: Tensor, carried: Factors, *, beta1: float, iterations: int, fresh: bool, sketch: Sketch
    ) -> Factors: ...


def subspace(
    gradient: Tensor, carried: Factors, *, beta1: float, iterations: int, fresh: bool, sketch: Sketch
) -> Factors:
    """Warm-started subspace iteration: repeat Q = orth(M R^T), R = Q^T M; then L = Q.

    One iteration a step is nearly as good as the exact SVD, if n counts the layer's inputs. Then R' spans input
    directions, which turn slowly (a gradient is a sum of output errors × inputs, and inputs have a large steady part).
    Measured on a 1 M-parameter GPT, residual over norm of M in an MLP block: SVD 0.033, one iteration 0.036, one
    iteration from the output side 0.164; a second iteration makes the sides equal (0.035 and 0.033).

    Args:
        gradient: G, m × n; outputs × inputs for the reason above.
        carried: L' (m × r) and R' (r × n) of the step before; zeros at the first step.
        beta1: Decay rate of the momentum.
        iterations: Subspace iterations, at least 1.
        fresh: Start from a sketch instead of R' (first step, and every refresh).
        sketch: Draws that start. Also drawn where R' is zero, the one start from which no iteration moves.

    Returns:
        L with orthonormal columns, and R.
    """
    # The zero start: at the first step, and while every gradient has been zero.
    right = sketch() if fresh or not bool(carried.right.any()) else carried.right
    basis = carried.left
    for _ in range(iterations):
        basis = _orthonormal(_times_transposed(gradient, carried, right, beta1))
        right = _transposed_times(basis, gradient, carried, beta1)
    return Factors(basis, right)


def svd(gradient: Tensor, carried: Factors, *, beta1: float, iterations: int, fresh: bool, sketch: Sketch) -> Factors:
    """The exact minimiser, by a singular value decomposition of M: L = U_r, R = S_r V_r^T (Eckart–Young).

    The reference: it forms M and costs O(m n min(m, n)). `iterations`, `fresh` and `sketch` have no meaning here.
    """
    rank = carried.left.shape[1]
    momentum = torch.addmm(gradient, carried.left, carried.right, beta=1.0 - beta1, alpha=beta1)
    if not bool(momentum.isfinite().all()):
        # LAPACK refuses such input; as in Adam, a gradient that is not finite spoils the state visibly.
        return Factors(carried.left * torch.nan, carried.right * torch.nan)
    left, values, right = torch.linalg.svd(momentum, full_matrices=False)
    return Factors(left[:, :rank].contiguous(), values[:rank, None] * right[:rank])


SOLVERS: dict[str, Solver] = {"subspace": subspace, "svd": svd}


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The update's numerator as `gradient` G + `carried` L' R' + `current` L R."""

    gradient: float
    carried: float
    current: float


def mixture(beta1: float, *, bias_correction: bool, debias_at: int | None = None) -> Mixture:
    """The coefficients of the bias-corrected momentum in closed form.

    Algorithm 1's m^c = M - c (L R - M), with c = b1 / (1 - b1) and M = (1 - b1) G + b1 L' R', is

        m^c = (1 + c)(1 - b1) G + (1 + c) b1 L' R' - c L R  =  G + c (L' R' - L R).

    Args:
        beta1: b1, in [0, 1).
        bias_correction: False gives L R, the paper's ablation (figure 4a).
        debias_at: A step t ≥ 1 asks for Adam's 1 / (1 - b1^t). c then becomes its finite sum over the t - 1 past
            residuals, (b1 - b1^t) / (1 - b1), so that the part outside the factors is G itself at every t, as it
            should be, and not G / (1 - b1^t). The paper's c is the limit for large t.
    """
    decayed = 0.0 if debias_at is None else beta1**debias_at
    if not bias_correction:
        return Mixture(gradient=0.0, carried=0.0, current=1.0 / (1.0 - decayed))
    c = (beta1 - decayed) / (1.0 - beta1)
    scale = (1.0 + c) / (1.0 - decayed)
    return Mixture(gradient=scale * (1.0 - beta1), carried=scale * beta1, current=-c / (1.0 - decayed))


def mixed_factors(carried: Factors, current: Factors, weights: Mixture) -> Factors:
    """A (m × 2r) and B (2r × n), so that the corrected momentum is `weights.gradient` G + A B: one GEMM."""
    left = torch.cat((carried.left * weights.carried, current.left * weights.current), dim=1)
    return Factors(left, torch.cat((carried.right, current.right), dim=0))


def gaussian_sketch(seed: int, step: int, block: str, like: Tensor) -> Tensor:
    """Standard normal numbers of `like`'s shape, type and device, the same wherever they are drawn again.

    Drawn on the CPU from (seed, step, block) alone, so that a resumed run and every rank of a parallel run agree.
    """
    digest = sha256(f"{seed}/{step}/{block}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32)
    return drawn.to(device=like.device, dtype=like.dtype)


def _times_transposed(gradient: Tensor, carried: Factors, right: Tensor, beta1: float) -> Tensor:
    """M right^T (m × r) without M."""
    through_carried = torch.mm(carried.left, torch.mm(carried.right, right.mT))
    return torch.addmm(through_carried, gradient, right.mT, beta=beta1, alpha=1.0 - beta1)


def _transposed_times(basis: Tensor, gradient: Tensor, carried: Factors, beta1: float) -> Tensor:
    """basis^T M (r × n) without M."""
    through_carried = torch.mm(torch.mm(basis.mT, carried.left), carried.right)
    return torch.addmm(through_carried, basis.mT, gradient, beta=beta1, alpha=1.0 - beta1)


def _orthonormal(columns: Tensor) -> Tensor:
    """An orthonormal basis of m × r columns: Cholesky QR, twice, or Householder's QR where that would not be accurate.

    The columns are scaled to unit length first, which removes the spread of the singular values from the Gram matrix.
    Cholesky QR loses orthogonality with the square of the condition number, whose inverse the smallest pivot bounds
    from above: below ten times sqrt(machine epsilon), or where the factorisation breaks down (columns that depend on
    each other, are zero or not finite), Householder's QR takes over. (Yamamoto et al., "Roundoff error analysis of the
    CholeskyQR2 algorithm", 2015.)
    """
    unit: Tensor = columns / torch.linalg.vector_norm(columns, dim=0, keepdim=True)
    lower, failed = torch.linalg.cholesky_ex(torch.mm(unit.mT, unit))
    smallest_pivot = float(lower.diagonal().min())
    if int(failed) or not smallest_pivot > 10.0 * torch.finfo(columns.dtype).eps ** 0.5:
        householder: Tensor = torch.linalg.qr(columns).Q
        return householder
    basis = _solve_right(unit, lower)
    lower, _ = torch.linalg.cholesky_ex(torch.mm(basis.mT, basis))
    return _solve_right(basis, lower)


def _solve_right(columns: Tensor, lower: Tensor) -> Tensor:
    """columns (lower^T)^-1."""
    solved: Tensor = torch.linalg.solve_triangular(lower.mT, columns, upper=True, left=False)
    return solved
