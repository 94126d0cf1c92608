"""The low-rank momentum: the momentum of an m × n block as L R, with L m × r and R r × n, and the products that the
solvers (`solvers.py`) take of it.

Every function here takes one block, or a batch of blocks of one shape with a leading dimension B. Those that take
sequences take batches of several shapes: the r × r matrices of all of them are worked out in one call for each r.

One step of the carried momentum is (paper, algorithm 1, lines 4 and 5)

    M    = (1 - b1) G + b1 L' R'          G the gradient, L' R' the factors of the step before
    L, R = argmin || L R - M ||_F         of rank r

All solvers but `svd` never form M: they need only products of thin matrices with it,

    X M^T = (1 - b1) X G^T + b1 (X R'^T) L'^T        Q^T M = (1 - b1) Q^T G + b1 (Q^T L') R'

so the gradient is the only full-size operand. Thin matrices are kept as r rows, never as r columns: with r rows on the
left, both products with G run nearly at the speed of a square one, with r columns on the right slower.
`mixed_factors` turns old and new factors into the update's numerator, the bias-corrected momentum, by one GEMM of inner
size 2r.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor

from .devices import cache_tensors, matmul, matmul_transposed, product_of
from .sharded import Groups, sum_over_processes

Number = float | Tensor
"""A number of a step, or where it is on the device."""


class Factors(NamedTuple):
    """A momentum of rank r."""

    left: Tensor
    """L, m × r (or B × m × r)."""
    right: Tensor
    """R, r × n (or B × r × n)."""

    def transpose(self) -> "Factors":
        """Return the factors of (L R)^T."""
        return Factors(self.right.mT, self.left.mT)


class WarmStart(NamedTuple):
    """The rows X that an iteration starts from: R' at ordinary size, and a sketch's rows in the places of weak ones."""

    rows: Tensor
    """R', B × r × n; or X itself, where there is nothing else."""
    inverse: Tensor | None = None
    """The factor of each row of R', B × r × 1; 0 for weak rows."""
    sketch: Tensor | None = None
    """B × r × n, or r × n for all blocks."""

    def dense(self) -> Tensor:
        """Return X itself."""
        if self.inverse is None or self.sketch is None:
            return self.rows
        return torch.where(self.inverse == 0.0, self.sketch, self.rows * self.inverse)


@dataclass(frozen=True)
class Momentum:
    """M = (1 - b1) G + b1 L' R', as the products that solvers take of it."""

    gradient: Tensor
    """G, m × n."""
    carried: Factors
    """L' and R' of the step before."""
    beta1: float
    precision: str = "highest"
    """The precision of products with G: one of `devices.MATMUL_PRECISIONS`."""
    outputs: Groups = ()
    """The processes that M's rows are divided among; G and L' are the part that is here, and so are products."""
    inputs: Groups = ()
    """Those that its columns are divided among; likewise for G and R'."""

    def start_times_transposed(self, start: WarmStart) -> Tensor:
        """Return X M^T (r × m), for the r rows X of a start, of length n."""
        rows = start.dense()
        through_carried = matmul_transposed(matmul_transposed(rows, self.carried.right), self.carried.left)
        return self._lerp_product(through_carried, rows, self.gradient)

    def gram(self, rows: Tensor) -> Tensor:
        """Return X X^T, for r rows X as those of a product with M^T; in float64 if the device has it."""
        wide = rows.to(_gram_dtype(rows))
        return product_of(wide, wide.mT)

    def rows_times(self, rows: Tensor) -> Tensor:
        """Return X M (r × n), for r rows X of length m."""
        through_carried = matmul(matmul(rows, self.carried.left), self.carried.right)
        return self._lerp_product(through_carried, rows, self.gradient.mT)

    def _lerp_product(self, through_carried: Tensor, rows: Tensor, matrix: Tensor) -> Tensor:
        return matmul_transposed(rows, matrix, precision=self.precision).lerp_(through_carried, self.beta1)

    def square_sums(self) -> Tensor | None:
        """Return the sums of squares of each output of G that a product has found on the way, if one has."""
        return None

    def dense(self) -> Tensor:
        """Return M itself."""
        return add_product(self.gradient, *self.carried, beta=1.0 - self.beta1, alpha=self.beta1)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The update's numerator as `gradient` G + `carried` L' R' + `current` L R."""

    gradient: float
    carried: Number
    current: Number


def mixture(beta1: float, *, bias_correction: bool, debias_at: Number | None = None) -> Mixture:
    """Return the coefficients of the bias-corrected momentum in closed form.

    Algorithm 1's m^c = M - c (L R - M), with c = b1 / (1 - b1) and M = (1 - b1) G + b1 L' R', is

        m^c = (1 + c)(1 - b1) G + (1 + c) b1 L' R' - c L R  =  G + c (L' R' - L R).

    Args:
        beta1: b1, in [0, 1).
        bias_correction: False gives L R, the paper's ablation (figure 4a).
        debias_at: A step t ≥ 1 asks for Adam's 1 / (1 - b1^t). c then becomes its finite sum over the t - 1 past
            residuals, (b1 - b1^t) / (1 - b1), so that the part outside the factors is G itself at every t, as it
            should be, and not G / (1 - b1^t). The paper's c is the limit for large t. A tensor gives tensors.
    """
    decayed: Number = 0.0 if debias_at is None else beta1**debias_at
    if not bias_correction:
        return Mixture(gradient=0.0, carried=0.0, current=1.0 / (1.0 - decayed))
    c = (beta1 - decayed) / (1.0 - beta1)
    scale = (1.0 + c) / (1.0 - decayed)
    return Mixture(gradient=1.0, carried=scale * beta1, current=-c / (1.0 - decayed))


def mixed_factors(carried: Factors, current: Factors, weights: Mixture) -> Factors:
    """Return a (m × 2r) and B (2r × n), so that the corrected momentum is `weights.gradient` G + A B: one GEMM."""
    left = carried.left.new_empty((*carried.left.shape[:-1], 2 * carried.left.shape[-1]))
    of_carried, of_current = left.chunk(2, dim=-1)
    torch.mul(carried.left, weights.carried, out=of_carried)
    torch.mul(current.left, weights.current, out=of_current)
    return Factors(left, torch.cat((carried.right, current.right), dim=-2))


def gaussian_sketch(seed: int, step: int, block: str, like: Tensor) -> Tensor:
    """Return standard normal numbers of `like`'s shape, type and device, reproducible from seed, step and block.

    Drawn on `like`'s device from (seed, step, block) alone, so that a resumed run and every rank of a parallel run
    agree, and no device waits for the host.
    """
    digest = sha256(f"{seed}/{step}/{block}".encode()).digest()
    generator = torch.Generator(device=like.device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32, device=like.device)
    return drawn.to(like.dtype)


@cache_tensors(maxsize=32)
def spare_sketch(seed: int, rank: int, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the r × n rows that weak rows of R' start from, drawn once for all blocks; not to be written to.

    What a block had left out needs some part in every direction, not another one in each block or at each step.
    """
    like = torch.empty((rank, length), dtype=dtype, device=device)
    return gaussian_sketch(seed, 0, f"{rank} rows of {length}", like)


def add_product(base: Tensor, matrix: Tensor, other: Tensor, *, beta: float, alpha: float) -> Tensor:
    """Return beta base + alpha matrix other, for matrices or batches of them."""
    total: Tensor = (torch.addmm if base.ndim == 2 else torch.baddbmm)(base, matrix, other, beta=beta, alpha=alpha)
    return total


def starts_of(rows: Sequence[Tensor], spares: Sequence[Tensor], among: Sequence[Groups]) -> list[WarmStart]:
    """Return R' at ordinary size for subspace iteration, with rows of a sketch in the places of weak ones.

    So are directions that `orthonormal_rows` left out, and all of a block that has been idle for long. Nobody looks
    whether a row is weak: the host would have to wait for a device.

    Args:
        rows: R' of batches of several shapes.
        spares: A sketch for each.
        among: The processes that each batch's rows are divided among.
    """
    lengths = [torch.linalg.vector_norm(part, dim=-1, keepdim=True, dtype=_gram_dtype(part)) for part in rows]
    if any(among):
        lengths = [square.sqrt_() for square in sum_over_processes([part.square_() for part in lengths], among)]
    inverses = _map_by_size(partial(_inverse_of_strong, dtype=rows[0].dtype), lengths)
    return [WarmStart(*parts) for parts in zip(rows, inverses, spares, strict=True)]


def _inverse_of_strong(lengths: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the factors that bring rows of these lengths to length 1; 0 for weak ones."""
    squares = lengths.square()
    weak = squares <= (_WEAK**2 * squares.amax(dim=-2, keepdim=True)).clamp_min_(_negligible_size(dtype) ** 2)
    # Of rows near the end of the range the inverse is none of the ordinary numbers.
    return lengths.reciprocal_().to(dtype).clamp_min_(torch.finfo(dtype).tiny).masked_fill_(weak, 0.0)


def orthonormal_rows(
    rows: Sequence[Tensor], grams_of: Sequence[Callable[[Tensor], Tensor]], among: Sequence[Groups]
) -> list[Tensor]:
    """Return orthonormal bases of the spans of r rows, by Cholesky QR, twice; rows of zeros if the span is smaller.

    Nobody looks at a value, which the host would have to wait for: the r × r matrices of all batches are worked out in
    one call for each r. The first pass is for rows of any size that may depend on each other, with Gram matrices in
    float64; the second makes up for its rounding.

    Args:
        rows: Batches of several shapes.
        grams_of: Give X X^T of each in float64.
        among: The processes that each batch's rows are divided among.
    """
    grams = sum_over_processes([gram(part) for gram, part in zip(grams_of, rows, strict=True)], among)
    transforms = _map_by_size(partial(spanning_transform, dtype=rows[0].dtype), grams)
    first = [product_of(transform, part) for transform, part in zip(transforms, rows, strict=True)]
    again = sum_over_processes([product_of(part, part.mT) for part in first], among)
    return [product_of(inverse, part) for inverse, part in zip(_map_by_size(second_inverse, again), first, strict=True)]


def _map_by_size(function: Callable[[Tensor], Tensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the values of a function of a batch of matrices; those with as many rows in one call."""
    sizes: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        sizes.setdefault(part.shape[-2], []).append(index)
    values: dict[int, Tensor] = {}
    for indices in sizes.values():
        batches = [parts[index] if parts[index].ndim > 2 else parts[index][None] for index in indices]
        pieces = torch.split(function(torch.cat(batches)), [len(batch) for batch in batches])
        values |= {index: piece.view_as(parts[index]) for index, piece in zip(indices, pieces, strict=True)}
    return [values[index] for index in range(len(parts))]


_WEAK = 1e-3
"""A row depends on others if they leave no more of its length, and is weak if that is its part of the longest.

What is left of a row is known to the rounding of the row, so that weaker directions would differ by more than 6e-5 in
float32 between machines that sum in another order; and by ever more once the gradient has new directions.
"""


def spanning_transform(gram: Tensor, dtype: torch.dtype) -> Tensor:
    """Return T such that the rows of T X are orthonormal, or zero, and span the rows of X.

    A row that is negligible, or depends on those before it, has zeros for its row of T, and no part in the others. One
    process and several that share the rows have the same Gram matrix but for rounding, and leave out the same rows.

    Args:
        gram: X X^T, in float64 where the device has it: in float32 it would not tell weak directions from rounding.
        dtype: Of X, and of T.

    Returns:
        r × r, lower triangular; NaN where the Gram matrix is not finite, so that a bad gradient shows.
    """
    spoilt = (gram * 0.0).sum(dim=(-2, -1), keepdim=True)
    squares = gram.diagonal(dim1=-2, dim2=-1)[..., None]
    inverse = squares.rsqrt().masked_fill_(squares <= _negligible_size(dtype) ** 2, 0.0)
    unit = gram * inverse * inverse.mT
    identity = _identity(gram.shape[-1], gram.dtype, gram.device)
    # What Cholesky needs to succeed on a singular matrix of this size (Fukaya et al., "Shifted Cholesky QR", 2020).
    rounding = gram.shape[-1] * torch.finfo(gram.dtype).eps
    pivots = torch.linalg.cholesky_ex(unit + 11.0 * rounding * identity).L.diagonal(dim1=-2, dim2=-1)[..., None]
    is_independent = pivots.square() > max(_WEAK**2, 100.0 * rounding)
    is_pair_independent = is_independent & is_independent.mT
    lower = torch.linalg.cholesky_ex(torch.where(is_pair_independent, unit, identity)).L
    return (torch.where(is_pair_independent, _inverse_of(lower) * inverse.mT, 0.0) + spoilt).to(dtype)


def second_inverse(gram: Tensor) -> Tensor:
    """Return the inverse of the Cholesky factor of the Gram matrix of rows that are orthonormal but for rounding, or
    zeros."""
    lengths = gram.diagonal(dim1=-2, dim2=-1)
    lengths.add_(lengths < 0.5)  # so that rows of zeros stay
    return _inverse_of(torch.linalg.cholesky_ex(gram).L)


def _inverse_of(lower: Tensor) -> Tensor:
    """Return the inverse of a lower triangle r × r: a product with it is faster than a triangular system of long rows.

    It costs nothing in accuracy that the second pass of Cholesky QR would not restore.
    """
    identity = _identity(lower.shape[-1], lower.dtype, lower.device).expand_as(lower)
    inverse: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False)
    return inverse


@cache_tensors(maxsize=64)
def _identity(rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the cached identity matrix, which must not be written to."""
    return torch.eye(rank, dtype=dtype, device=device)


def _gram_dtype(rows: Tensor) -> torch.dtype:
    return rows.dtype if rows.device.type == "mps" else torch.float64  # Apple's GPUs have no float64


def _negligible_size(dtype: torch.dtype) -> float:
    """Return the size below which the largest element of a row or block is negligible: 3.5e-29 in float32, 1.5e-154 in
    float64.

    Far from the smallest number, so that a quotient by it stays in range, and that its square is a float64.
    """
    return float(max(torch.finfo(dtype).tiny ** 0.75, torch.finfo(torch.float64).tiny ** 0.5))
