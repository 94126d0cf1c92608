"""Solvers for the factors of a low-rank momentum: L, R = argmin || L R - M ||_F.

    subspace     warm-started subspace iteration, the default: nearly as good as the exact SVD
    svd          the exact minimiser, slow

Every solver takes momenta of one rank, each of one block, or of a batch of blocks of one shape with a leading B.

The paper finds L and R by K = 5 steps of gradient descent on f = || L R - M ||_F^2 / 2 from the factors of the step
before, with the step size eta_k = (1 + cos(pi k / K)) / 2. As printed that does not work:

* L = R = 0, its stated start, is a stationary point: grad_L = (L R - M) R^T and grad_R = L^T (L R - M) both vanish
  there. The factors never move, and AdaPM silently becomes RMSprop without momentum.
* Its step is not scale-free. Gradients of magnitude 1e-3 give factors of about that size, whose products with an
  eta of 1 hardly move them, even from the best start: most of the momentum is missed (`docs/LOG.md`), where `subspace`
  misses far less.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .low_rank import Factors, Momentum, WarmStart, orthonormal_rows, starts_of
from .sharded import sum_over_processes


def subspace(momenta: Sequence[Momentum], *, iterations: int, fresh: bool, sketches: Sequence[Tensor]) -> list[Factors]:
    """Do warm-started subspace iteration: repeat Q = orth(M R^T), R = Q^T M; then L = Q.

    One iteration a step is nearly as good as the exact SVD, if n counts the layer's inputs. Then R' spans input
    directions, which turn slowly (a gradient is a sum of output errors × inputs, and inputs have a large steady part).
    From the output side one iteration misses more, and a second one makes the sides equal (`docs/LOG.md`).

    Args:
        momenta: M; G is outputs × inputs for the reason above, L' and R' are zeros at the first step.
        iterations: Subspace iterations, at least 1.
        fresh: Start from sketches instead of R' (first step, and every refresh).
        sketches: Those starts, r × n of each block or of all of a batch; at other steps what weak rows of R' start
            from, since no iteration moves from zero.

    Returns:
        L with orthonormal columns, and R. Where M has fewer than r directions, the columns and rows that are left over
        are zero, and start from a sketch at the next step.
    """
    bases = list[Tensor]()
    outputs, inputs = [momentum.outputs for momentum in momenta], [momentum.inputs for momentum in momenta]
    rows = [momentum.carried.right for momentum in momenta]
    for k in range(iterations):
        # From rows of ordinary size: R' is as small as M, whose product with it would be as small as the square of M.
        starts = [WarmStart(sketch) for sketch in sketches] if fresh and k == 0 else starts_of(rows, sketches, inputs)
        products = [momentum.start_times_transposed(start) for momentum, start in zip(momenta, starts, strict=True)]
        del starts
        bases = orthonormal_rows(sum_over_processes(products, inputs), [part.gram for part in momenta], outputs)
        del products
        rows = [momentum.rows_times(basis) for momentum, basis in zip(momenta, bases, strict=True)]
        rows = sum_over_processes(rows, outputs)
    return [Factors(basis.mT, right) for basis, right in zip(bases, rows, strict=True)]


def svd(momenta: Sequence[Momentum], *, iterations: int, fresh: bool, sketches: Sequence[Tensor]) -> list[Factors]:
    """Return the exact minimiser, by a singular value decomposition of M: L = U_r, R = S_r V_r^T (Eckart–Young).

    The reference: it forms M and costs O(m n min(m, n)). All else than `momenta` has no meaning here.
    """
    factors = []
    for momentum in momenta:
        rank, dense = momentum.carried.left.shape[-1], momentum.dense()
        # LAPACK refuses what is not finite; as in Adam, such a gradient spoils the state of its own block visibly.
        finite = dense.isfinite().all(dim=-1, keepdim=True).all(dim=-2, keepdim=True)
        left, values, right = torch.linalg.svd(torch.where(finite, dense, 0.0), full_matrices=False)
        spoilt = torch.where(finite, 1.0, torch.nan).to(dense.dtype)
        factors.append(Factors(left[..., :rank] * spoilt, values[..., :rank, None] * right[..., :rank, :] * spoilt))
    return factors


SOLVERS: dict[str, Callable[..., list[Factors]]] = {"subspace": subspace, "svd": svd}
"""Each finds the factors of every M = (1 - b1) G + b1 L' R'."""
DENSE_SOLVER = "svd"
"""The solver that needs M itself, whole and as large as the gradient, whose decomposition by torch waits for the
device."""
