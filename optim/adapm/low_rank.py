"""The low-rank momentum: the momentum of an m × n block as L R, with L m × r and R r × n, and the products that the
solvers (`solvers.py`) take of it.

Every function here takes one block, or a batch of blocks of one shape with a leading dimension B. Those that take
sequences take batches of several shapes, of one rank: each r × r matrix of all of them is worked out in one call.

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
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor

from . import devices
from .devices import cache_tensors, lerp_product, product_of, times, times_transposed

Number = float | Tensor
"""A number of a step, or where it is on the device."""
Sketch = Callable[[], Tensor]
"""Gives r × n starts, one for each block of the batch or one for all of them; called only where one is needed."""


class Factors(NamedTuple):
    """A momentum of rank r."""

    left: Tensor
    """L, m × r (or B × m × r)."""
    right: Tensor
    """R, r × n (or B × r × n)."""

    def transpose(self) -> "Factors":
        """Return the factors of (L R)^T."""
        return Factors(self.right.mT, self.left.mT)


class Start(NamedTuple):
    """The rows X that an iteration starts from: R' at ordinary size, and a sketch's rows in the places of weak ones."""

    rows: Tensor
    """R', B × r × n; or X itself, where there is nothing else."""
    inverse: Tensor | None = None
    """The factor of each row of R', B × r × 1; 0 for weak rows."""
    sketch: Tensor | None = None
    """B × r × n, or r × n for all blocks."""

    def dense(self) -> Tensor:
        """X itself."""
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

    def rows_times_transposed(self, rows: Tensor) -> Tensor:
        """X M^T (r × m), for r rows X of length n."""
        through_carried = times_transposed(times_transposed(rows, self.carried.right), self.carried.left)
        return self._lerp_product(through_carried, rows, self.gradient)

    def start_times_transposed(self, start: Start) -> Tensor:
        """X M^T (r × m), for the r rows X of a start."""
        return self.rows_times_transposed(start.dense())

    def gram(self, rows: Tensor) -> Tensor:
        """X X^T in float64, for r rows X as those of a product with M^T."""
        return gram_matrix(rows)

    def rows_times(self, rows: Tensor) -> Tensor:
        """X M (r × n), for r rows X of length m."""
        through_carried = times(times(rows, self.carried.left), self.carried.right)
        return self._lerp_product(through_carried, rows, self.gradient.mT)

    def _lerp_product(self, through_carried: Tensor, rows: Tensor, matrix: Tensor) -> Tensor:
        if devices.is_accelerator(rows.device):  # whose own library has it in one launch
            return lerp_product(through_carried, rows, matrix, 1.0 - self.beta1, precision=self.precision)
        return times_transposed(rows, matrix, precision=self.precision).lerp_(through_carried, self.beta1)

    def dense(self) -> Tensor:
        """M itself."""
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
    left = carried.left.new_empty((*carried.left.shape[:-1], carried.left.shape[-1] + current.left.shape[-1]))
    of_carried, of_current = left.tensor_split((carried.left.shape[-1],), dim=-1)
    torch.mul(carried.left, weights.carried, out=of_carried)
    torch.mul(current.left, weights.current, out=of_current)
    return Factors(left, torch.cat((carried.right, current.right), dim=-2))


def gaussian_sketch(seed: int, step: int, block: str, like: Tensor) -> Tensor:
    """Standard normal numbers of `like`'s shape, type and device, the same wherever they are drawn again.

    Drawn on `like`'s device from (seed, step, block) alone, so that a resumed run and every rank of a parallel run
    agree, and no device waits for the host.
    """
    digest = sha256(f"{seed}/{step}/{block}".encode()).digest()
    generator = torch.Generator(device=like.device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32, device=like.device)
    return drawn.to(like.dtype)


def draw_sketch(seed: int, step: int, blocks: Sequence[str], like: Tensor, *, fresh: bool) -> Tensor:
    """Return the rows that R' of these blocks is replaced by at a refresh, and that its weak rows start from at other
    steps.

    An accelerator cannot see whether any row is weak, and would have to draw at every step for nothing: between
    refreshes, blocks of one shape share a sketch there.

    Args:
        seed: The optimizer's.
        step: t.
        blocks: Their names.
        like: r × n for a single one, or B × r × n.
        fresh: Whether it is a refresh.
    """
    if devices.is_accelerator(like.device) and not fresh:
        return spare_sketch(seed, *like.shape[-2:], like.dtype, like.device)
    matrix = like if like.ndim == 2 else like[0]
    drawn = [gaussian_sketch(seed, step, block, matrix) for block in blocks]
    return drawn[0] if like.ndim == 2 else torch.stack(drawn)


@cache_tensors(maxsize=32)
def spare_sketch(seed: int, rank: int, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the shared r × n rows, drawn once; not to be written to.

    What a block had left out needs some part in every direction, not another one in each block or at each step.
    """
    like = torch.empty((rank, length), dtype=dtype, device=device)
    return gaussian_sketch(seed, 0, f"{rank} rows of {length}", like)


def add_product(base: Tensor, matrix: Tensor, other: Tensor, *, beta: float, alpha: float) -> Tensor:
    """Return beta base + alpha matrix other, for matrices or batches of them."""
    total: Tensor = (torch.addmm if base.ndim == 2 else torch.baddbmm)(base, matrix, other, beta=beta, alpha=alpha)
    return total


def scaled_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows at ordinary size, and what they were divided by: no square of theirs leaves the range of floats.

    A block whose gradient is zero, such as an expert that no token reaches, has a momentum that shrinks by b1 a step;
    after some 180 steps the squares of a norm are 0.

    Args:
        rows: r rows, or a batch of such.

    Returns:
        Rows whose largest element is 1, as they are where it is negligible; and the divisors, r × 1.
    """
    size = rows.abs().amax(dim=-1, keepdim=True)
    size.masked_fill_(size < _negligible_size(rows.dtype), 1.0)
    return rows / size, size


def rows_to_iterate_from(rows: Sequence[Tensor], *, fresh: bool, sketches: Sequence[Sketch]) -> list[Start]:
    """R' at ordinary size for subspace iteration: a sketch where asked for, and row by row where R' is weak.

    So are directions that `orthonormal_rows` left out, and all of a block that has been idle for long.

    Args:
        rows: R' of batches of several shapes, of one rank.
        fresh: Whether a sketch is asked for.
        sketches: One a batch.
    """
    if fresh:
        return [Start(scaled_rows(sketch())[0]) for sketch in sketches]
    if not devices.is_accelerator(rows[0].device):
        return [Start(_rows_unless_weak(batch, sketch)) for batch, sketch in zip(rows, sketches, strict=True)]
    # Nobody looks whether a row is weak: the host would have to wait.
    dtype = rows[0].dtype
    wide = [torch.linalg.vector_norm(batch, dim=-1, keepdim=True, dtype=_gram_dtype(batch)) for batch in rows]
    lengths = _join_blocks(wide)
    weak = are_weak(lengths.square(), dtype)
    # Of rows near the end of the range the inverse is none of the ordinary numbers.
    inverse = lengths.reciprocal_().to(dtype).clamp_min_(torch.finfo(dtype).tiny).masked_fill_(weak, 0.0)
    parts = zip(rows, _split_blocks(inverse, rows), sketches, strict=True)
    return [Start(batch, part, sketch()) for batch, part, sketch in parts]


def _rows_unless_weak(rows: Tensor, sketch: Sketch) -> Tensor:
    """Return the sketch is drawn only where a row is seen to be weak."""
    least = _negligible_size(rows.dtype)
    size = rows.abs().amax(dim=-1, keepdim=True).clamp_min_(least)
    even = rows / size
    lengths = torch.linalg.vector_norm(even, dim=-1, keepdim=True).mul_(size)
    if bool((lengths > (2.0 * _WEAK * lengths.amax(dim=-2, keepdim=True)).clamp_min_(2.0 * least)).all()):
        return even  # so nearly always
    squares = rows.to(_gram_dtype(rows)).square().sum(dim=-1, keepdim=True)
    return torch.where(are_weak(squares, rows.dtype), sketch(), even)


def orthonormal_rows(rows: Sequence[Tensor], gram: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Orthonormal bases of the spans of r rows, by Cholesky QR, twice; with rows of zeros where they span less.

    On an accelerator, which would have to wait for the host to look at a value, the r × r matrices of all batches are
    worked out in one call. The first pass is that for rows of any size that may depend on each other: with Gram
    matrices in float64 it is as exact as the other, and no other is needed.

    Args:
        rows: Batches of several shapes and one rank.
        gram: Gives X X^T in float64; on a CPU it is not asked.
    """
    if not devices.is_accelerator(rows[0].device):
        return [_orthonormal_rows_seen(one) for one in rows]
    # No square of a float32 leaves the range of float64; rows of the widest type are scaled instead.
    even = [scaled_rows(one)[0] if one.dtype is _gram_dtype(one) else one for one in rows]
    grams = _join_blocks([gram(one) for one in even])
    negligible = are_negligible(grams.diagonal(dim1=-2, dim2=-1)[..., None], rows[0].dtype)
    transforms = _split_blocks(spanning_transform(grams, negligible).to(rows[0].dtype), rows)
    first = [product_of(transform, one) for transform, one in zip(transforms, even, strict=True)]
    inverses = _split_blocks(inverse_of(second_factor(_join_blocks([product_of(one, one.mT) for one in first]))), rows)
    return [product_of(inverse, one) for inverse, one in zip(inverses, first, strict=True)]


def _orthonormal_rows_seen(rows: Tensor) -> Tensor:
    """Orthonormalise one batch, if the host sees whether rows are weak.

    The rows are scaled to unit length first, which removes the spread of the singular values from the Gram matrix.
    Cholesky QR loses orthogonality with the square of the condition number, whose inverse the smallest pivot bounds
    from above (Yamamoto et al., "Roundoff error analysis of the CholeskyQR2 algorithm", 2015). Where one is too small,
    or the factorisation breaks down (rows that depend on each other, are zero or not finite), `spanning_transform` has
    the first pass.
    """
    even, size = scaled_rows(rows)
    # No row whose largest element is 1 is shorter than 1.
    unit = even / torch.linalg.vector_norm(even, dim=-1, keepdim=True).clamp_min_(1.0)
    lower, failed = torch.linalg.cholesky_ex(unit @ unit.mT)
    bound = max(100.0 * torch.finfo(rows.dtype).eps, _WEAK**2) ** 0.5
    good = (failed == 0) & (lower.diagonal(dim1=-2, dim2=-1).amin(dim=-1) > bound)
    first = inverse_of(lower) @ unit
    if not bool(good.all()):
        if rows.ndim == 2:
            first = _spanning_rows(even, size)
        else:
            bad = ~good
            first[bad] = _spanning_rows(even[bad], size[bad])
    basis: Tensor = inverse_of(second_factor(first @ first.mT)) @ first
    return basis


def _join_blocks(values: Sequence[Tensor]) -> Tensor:
    """Return the tensors of one shape of all blocks of all batches, one behind the other."""
    return torch.cat([batch if batch.ndim > 2 else batch[None] for batch in values])


def _split_blocks(values: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return each batch's part; undoes `_join_blocks`."""
    parts = torch.split(values, [batch.shape[0] if batch.ndim > 2 else 1 for batch in like])
    return [part if batch.ndim > 2 else part[0] for part, batch in zip(parts, like, strict=True)]


_WEAK = 1e-3
"""A row depends on others if they leave no more of its length, and is weak if that is its part of the longest.

What is left of a row is known to the rounding of the row, so that weaker directions would differ by more than 6e-5 in
float32 between machines that sum in another order; and by ever more once the gradient has new directions.
"""


def spanning_transform(gram: Tensor, negligible: Tensor) -> Tensor:
    """T, so that the rows of T X are orthonormal, or zeros, and span what the rows of X do.

    A row that is negligible, or depends on those before it, has zeros for its row of T, and no part in the others. One
    process and several that share the rows have the same Gram matrix but for rounding, and leave out the same rows.

    Args:
        gram: X X^T, in float64 where the device has it: in float32 it would not tell weak directions from rounding.
        negligible: Which rows of X are, r × 1.

    Returns:
        r × r, lower triangular; NaN where the Gram matrix is not finite, so that a bad gradient shows.
    """
    spoilt = (gram * 0.0).sum(dim=(-2, -1), keepdim=True)
    inverse = gram.diagonal(dim1=-2, dim2=-1)[..., None].rsqrt().masked_fill_(negligible, 0.0)
    unit = gram * inverse * inverse.mT
    identity = _identity(gram.shape[-1], gram.dtype, gram.device)
    # What Cholesky needs to succeed on a singular matrix of this size (Fukaya et al., "Shifted Cholesky QR", 2020).
    rounding = gram.shape[-1] * torch.finfo(gram.dtype).eps
    pivots = torch.linalg.cholesky_ex(unit + 11.0 * rounding * identity).L.diagonal(dim1=-2, dim2=-1)[..., None]
    is_independent = pivots.square() > max(_WEAK**2, 100.0 * rounding)
    both = is_independent & is_independent.mT
    lower = torch.linalg.cholesky_ex(torch.where(both, unit, identity)).L
    return torch.where(both, inverse_of(lower) * inverse.mT, 0.0) + spoilt


def second_factor(gram: Tensor) -> Tensor:
    """Return the Cholesky factor of the Gram matrix of rows that are orthonormal but for rounding, or zeros."""
    lengths = gram.diagonal(dim1=-2, dim2=-1)
    lengths.add_(lengths < 0.5)  # so that rows of zeros stay
    lower: Tensor = torch.linalg.cholesky_ex(gram).L
    return lower


def inverse_of(lower: Tensor) -> Tensor:
    """Return the inverse of a lower triangle r × r: a product with it is faster than a triangular system of long rows.

    It costs nothing in accuracy that the second pass of Cholesky QR would not restore.
    """
    identity = _identity(lower.shape[-1], lower.dtype, lower.device).expand_as(lower)
    inverse: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False)
    return inverse


@cache_tensors(maxsize=64)
def _identity(rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Made once; not to be written to."""
    return torch.eye(rank, dtype=dtype, device=device)


def are_negligible(squares: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask of negligible rows of that type, by their squared lengths in float64."""
    return squares <= _negligible_size(dtype) ** 2


def are_weak(squares: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask of rows of R' of that type that are negligible, or weak beside the longest: by their squared
    lengths in float64."""
    return squares <= (_WEAK**2 * squares.amax(dim=-2, keepdim=True)).clamp_min_(_negligible_size(dtype) ** 2)


def _spanning_rows(even: Tensor, size: Tensor) -> Tensor:
    """Return the first pass for rows whose `scaled_rows` these are."""
    gram = gram_matrix(even)
    squares = gram.diagonal(dim1=-2, dim2=-1)[..., None] * size.to(gram.dtype).square()
    return (spanning_transform(gram, are_negligible(squares, even.dtype)) @ even.to(gram.dtype)).to(even.dtype)


def gram_matrix(rows: Tensor) -> Tensor:
    """X X^T in float64, where the device has it."""
    wide = rows.to(_gram_dtype(rows))
    return product_of(wide, wide.mT)


def _gram_dtype(rows: Tensor) -> torch.dtype:
    return rows.dtype if rows.device.type == "mps" else torch.float64  # Apple's GPUs have no float64


def _negligible_size(dtype: torch.dtype) -> float:
    """Below, what a row or a block has for its largest element is negligible: 3.5e-29 in float32, 1.5e-154 in float64.

    Far from the smallest number, so that a quotient by it stays in range, and that its square is a float64.
    """
    return float(max(torch.finfo(dtype).tiny ** 0.75, torch.finfo(torch.float64).tiny ** 0.5))
