"""Triton kernels of a step. One moves all blocks of a batch at once, and reads and writes each value once:

    m = A B + weight_of_gradient G                    low-rank momentum; the 2r-deep product never leaves the chip
    m = m + (1 - b1) (G - m)                          full momentum
    v = b2 v + (1 - b2) G * G                         where v is kept for each element
    v = b2 v + (1 - b2) (mean of a row of G * G)      where each row keeps one; other shared v are worked out before
    W = (1 - lr wd) W - lr clip(m / (sqrt(v / debias) + eps), c)

Two read gradients alone: their products with thin matrices, with the sums of squares that a shared v needs, and those
sums by themselves. Products are in TF32, or each of a float32's two parts in TF32.

A batch is one launch: the addresses of its blocks are a table on the device, so that they lie wherever their parameters
do. A program moves a tile of a block, or whole rows where each row keeps one v: what it reads of G a second time is in
the cache. Arithmetic is in float32. Weights and state of bfloat16 are rounded here in integers, to the nearest or by
chance (`rounding.py`), so that Triton's interpreter, which would cut them off, does as a GPU does.

This is the only module that imports Triton; `compiled.py` says where it is used, and `step.py` has the same formulas in
torch's operators. Under `TRITON_INTERPRET=1` it runs on a CPU.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .devices import cache_tensors, increment_versions, matmul
from .low_rank import Factors, Momentum, WarmStart
from .rounding import RoundingKey

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
"""The types that kernels read and write; those of float64 are left to torch's operators."""
# Compiled for an H100 or an A100 none of these spills a register.
_TILE_ELEMENTS = 4096
_LOW_RANK_TILE = (32, 64)
"""The tile of low-rank blocks: with four warps the fastest of ten on an H200."""
_LOW_RANK_DEPTH = 16
"""Columns of A and rows of B at a time."""
_LOW_RANK_WARPS = 4
_MOST_ROWS = 128
"""The most rows of thin matrices that a program multiplies at a time."""
_PRODUCT_TILE = 64
_PRODUCT_SUMMED = 32
"""Products that are added up at a time."""
_PRODUCT_WARPS, _PRODUCT_STAGES = 8, 3
_SUM_TILES = ((4, 1024), (64, 64))
"""Sums at a time, and squares of each at a time: where squares lie side by side, and where sums do."""
_INNER_TILE = 64
"""Products of thin rows with others, by so many of each, that a program sums up."""
_LEAST_SPLIT, _ENOUGH_PROGRAMS = 512, 264
"""Rows are cut no shorter for such sums, and no more often than two programs for each of 132 processors need."""
_WARPS, _INNER_WARPS, _STAGES = 8, 4, 2
_INPUTS = {"highest": "tf32x3", "high": "tf32", "medium": "tf32"}
"""The parts of a float32 that a tensor core gets: its first 11 bits, or those and the next 11 apart, three products in
all. They miss the exact product by some 2^-21; sums of hundreds in float32 miss theirs by no less."""


def try_on(device: torch.device) -> None:
    """Move a small low-rank block there by the kernels, and by torch's operators; waits for the device.

    Raises:
        RuntimeError: they do not agree, or there is no driver, or no C compiler for Triton's launcher.
        TritonError: a kernel cannot be compiled for that device, or needs more of it than it has.
    """
    weight, gradient, moment = (torch.linspace(-1.0, 1.0, 33 * 70, device=device).view(33, 70) for _ in range(3))
    moment = moment.square() + 0.1
    factors = Factors(torch.eye(33, 5, device=device), gradient[:5].contiguous())
    numbers = torch.tensor([0.5, 1.5, 0.9, 0.1, 1.0, 1e-8, 1.0, 0.9, 0.1, 0.1], device=device)
    numerator = 0.5 * gradient
    numerator[:5] += 1.5 * factors.right
    root = (0.9 * moment + 0.1 * gradient.square()).sqrt() + 1e-8
    expected = 0.9 * weight - 0.1 * (numerator / root).clamp(-1.0, 1.0)
    move(Blocks([weight], [gradient], [], [moment]), factors, None, numbers)
    pairs = [(weight, expected, 1e-3)]
    rows = torch.linspace(-1.0, 1.0, _MOST_ROWS * 70, device=device).view(1, -1, 70)
    some_weak = 2.0 * (torch.arange(_MOST_ROWS, device=device) % 3 > 0).float().view(1, -1, 1)
    for start in (WarmStart(rows), WarmStart(rows, some_weak, rows[0].flip(1))):
        dense = start.dense()
        for precision in _INPUTS:  # with all the rows that a tile may have
            pairs.append((multiply(start, [gradient], axis=0, precision=precision), dense @ gradient.mT, 1e-1))
        for dtype, error in ((torch.float64, 1e-12), (torch.float32, 1e-3)):
            products = multiply(start, rows, axis=0, dtype=dtype)
            pairs.append((products, dense.to(dtype) @ rows.to(dtype).mT, error))
    if not all(torch.allclose(ours, torchs, rtol=0.1 * error, atol=error) for ours, torchs, error in pairs):
        raise RuntimeError("its kernels do not agree with torch's operators")


class Blocks(NamedTuple):
    """Blocks of one shape m × n and one kind: of each list as many as there are blocks, and all of one type."""

    weights: Sequence[Tensor]
    """W, changed in place."""
    gradients: Sequence[Tensor]
    averages: Sequence[Tensor]
    """m of full momentum, changed in place; empty for other blocks."""
    moments: Sequence[Tensor]
    """v of each element (m × n) or of each row (m), changed in place; empty if there is a divisor."""


class StochasticRounding(NamedTuple):
    """The stochastic rounding of bfloat16 weights."""

    keys: Sequence[RoundingKey]
    """The keys, one for each block."""
    first_place: int
    """The place of the first weight in the whole block, row by row, which chances are drawn by."""
    columns: int
    """The columns of the whole block: the distance between rows."""


def move(
    blocks: Blocks,
    factors: Factors | None,
    divisor: Tensor | None,
    numbers: Tensor,
    *,
    rounding: StochasticRounding | None = None,
    precision: str = "highest",
) -> None:
    """Move blocks, and what is kept of their moments. Addresses go to the device where they are not those of before.

    Args:
        blocks: What is moved.
        factors: A (B × m × 2r) and B (B × 2r × n) of low-rank blocks; without the leading B for a single one.
        divisor: sqrt(v / debias) + eps, B × m × 1 or B × 1 × n, where it has been worked out before; as for factors.
        numbers: On the device, in float32: as `compiled.move` has them, and 1 - b1.
        rounding: Where weights are rounded by chance.
        precision: Of the products, in torch's words: those of `_INPUTS`.
    """
    if blocks.weights[0].numel() == 0:
        return
    increment_versions(blocks.weights)
    with _current(numbers.device):
        for chosen in _group_by_layout(*(tensors for tensors in blocks if tensors)):
            addresses = tuple(tensors[index].data_ptr() if tensors else 0 for tensors in blocks for index in chosen)
            keys = () if rounding is None else tuple(rounding.keys[index][part] for part in (0, 1) for index in chosen)
            weight, gradient = blocks.weights[chosen[0]], blocks.gradients[chosen[0]]
            average, moment = (tensors[chosen[0]] if tensors else None for tensors in (blocks.averages, blocks.moments))
            rows, columns = weight.shape
            means_rows = moment is not None and moment.ndim == 1
            left, right = (None, None) if factors is None else (factor.contiguous() for factor in factors)
            tile_rows, tile_columns = _tile(rows, columns, is_product=factors is not None)
            tiles = triton.cdiv(rows, tile_rows) * (1 if means_rows else triton.cdiv(columns, tile_columns))
            reached = (weight, gradient, average, moment, left, right)
            _move[(tiles * len(chosen),)](
                _on_device((*addresses, *chosen, *keys), weight.device),
                left,
                right,
                divisor,
                numbers,
                len(chosen),
                tiles,
                rows,
                columns,
                0 if left is None else left.shape[-1],
                *weight.stride(),
                *gradient.stride(),
                *_strides(divisor),
                *(rounding[1:] if rounding is not None else (0, 0)),
                HAS_AVERAGE=average is not None,
                V="given" if moment is None else "row" if means_rows else "element",
                BY_CHANCE=rounding is not None,
                PRECISION=_INPUTS[precision],
                WEIGHT=DTYPES[weight.dtype],
                GRADIENT=DTYPES[gradient.dtype],
                STATE=DTYPES[next((state.dtype for state in (moment, average) if state is not None), torch.float32)],
                INDEX=_index_type(reached),
                IS_ALIGNED=_are_aligned(addresses),
                TILE_ROWS=tile_rows,
                TILE_COLUMNS=tile_columns,
                TILE_DEPTH=_LOW_RANK_DEPTH,
                num_warps=_WARPS if factors is None else _LOW_RANK_WARPS,
                num_stages=_STAGES,
            )


@dataclass(frozen=True, kw_only=True)
class SpreadMomentum(Momentum):
    """M of B blocks whose gradients lie where their parameters' do."""

    gradients: Sequence[Tensor]
    """G of each, outputs × inputs; `gradient` is the first of them."""
    _sums: list[Tensor] = field(default_factory=list)

    def start_times_transposed(self, start: WarmStart) -> Tensor:
        """Return X M^T (B × r × outputs), for the r rows X of each, made of R' wherever they are read."""
        products = multiply(start, self.carried.right, axis=0)
        carried = Carried(products, self.carried.left.mT, self.beta1)
        sums = None
        if not self._sums:
            sums = products.new_empty((len(self.gradients), self.gradients[0].shape[0]))
            self._sums.append(sums)
        return multiply(start, self.gradients, axis=0, sums=sums, carried=carried, precision=self.precision)

    def gram(self, rows: Tensor) -> Tensor:
        """Return X X^T (B × r × r) in float64, without a copy of X in it."""
        return multiply(WarmStart(rows), rows, axis=0, dtype=torch.float64)

    def rows_times(self, rows: Tensor) -> Tensor:
        """Return X M (B × r × inputs), for r rows X of each."""
        carried = Carried(matmul(rows, self.carried.left), self.carried.right, self.beta1)
        return multiply(WarmStart(rows), self.gradients, axis=1, carried=carried, precision=self.precision)

    def square_sums(self) -> Tensor | None:
        """Return the sums of squares of each output of G; of several blocks B × outputs."""
        sums = self._sums[0] if self._sums else None
        return sums[0] if sums is not None and len(sums) == 1 else sums

    def dense(self) -> Tensor:
        """Return M itself (B × outputs × inputs)."""
        whole = torch.stack([*self.gradients]).to(self.carried.left.dtype)
        return Momentum(whole, self.carried, self.beta1).dense()


class Carried(NamedTuple):
    """The part of a product that goes through the factors of the step before."""

    through: Tensor
    """B × r × r."""
    thin: Tensor
    """R', or L'^T: B × r × n (or m)."""
    weight: float
    """b1: of this part; the product with G has the rest."""


def multiply(
    start: WarmStart,
    matrices: Sequence[Tensor] | Tensor,
    *,
    axis: int,
    sums: Tensor | None = None,
    carried: Carried | None = None,
    precision: str = "highest",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return X G^T (axis 0) or X G (axis 1), in one launch if the matrices have equal strides.

    Args:
        start: X of each, B × r × n (or m).
        matrices: G of each, m × n. Thin ones may be one tensor, B × m × n: where they are too few to keep a device
            busy, each is cut along its rows, and the parts are added up.
        axis: Of G that stays.
        sums: B × m (or n): the sums of squares along the other axis are written here.
        carried: What is added.
        precision: Of the products with G, in torch's words: those of `_INPUTS`.
        dtype: Of the products: float32 or float64.

    Returns:
        B × r × m (or n).
    """
    blocks, rank, length = start.rows.shape
    splits = 1
    if isinstance(matrices, Tensor):
        programs = blocks * triton.cdiv(rank, _INNER_TILE) ** 2
        splits = max(1, min(triton.cdiv(_ENOUGH_PROGRAMS, programs), triton.cdiv(length, _LEAST_SPLIT)))
    products = start.rows.new_empty((splits, blocks, rank, matrices[0].shape[axis]), dtype=dtype)
    _launch_product(start, matrices, products, axis=axis, sums=sums, carried=carried, precision=precision)
    return products[0] if splits == 1 else products.sum(dim=0)


def square_sums(gradients: Sequence[Tensor], *, axis: int) -> Tensor:
    """Return the sums of squares, in float32, of each row (axis 0) or column (axis 1) of matrices of one shape: a row
    for each."""
    sums = torch.empty((len(gradients), gradients[0].shape[axis]), dtype=torch.float32, device=gradients[0].device)
    _launch_product(None, gradients, None, axis=axis, sums=sums)
    return sums


def _launch_product(
    start: WarmStart | None,
    matrices: Sequence[Tensor] | Tensor,
    products: Tensor | None,
    *,
    axis: int,
    sums: Tensor | None = None,
    carried: Carried | None = None,
    precision: str = "highest",
) -> None:
    """Fill in products, splits × B × r × m (or n), and sums of squares, B × m (or n); either may be left out.

    The arguments are those of `multiply`, but for `start`, which is None for sums alone.
    """
    rows, inverse, sketch = start or (None, None, None)
    through, thin, weight = carried or (None, None, 0.0)
    rank = 0 if rows is None else rows.shape[1]
    device = matrices[0].device
    with _current(device):
        for chosen in [range(len(matrices))] if isinstance(matrices, Tensor) else _group_by_layout(matrices):
            matrix, table, is_aligned, matrix_block = matrices[chosen[0]], None, False, 0
            if isinstance(matrices, Tensor):
                matrix_block = matrices.stride(0)
            else:
                addresses = tuple(matrices[index].data_ptr() for index in chosen)
                table, is_aligned = _on_device((*addresses, *chosen), device), _are_aligned(addresses)
            shape, steps = matrix.shape, matrix.stride()
            tile_rows = max(16, triton.next_power_of_2(rank))
            if rows is None:
                tile, summed, warps, stages = *_SUM_TILES[0 if steps[1 - axis] == 1 else 1], _WARPS, _PRODUCT_STAGES
            elif table is None:
                tile = tile_rows = min(_INNER_TILE, tile_rows)
                summed, warps, stages = _PRODUCT_SUMMED, _INNER_WARPS, _STAGES
            else:
                tile, summed, warps, stages = _PRODUCT_TILE, _PRODUCT_SUMMED, _PRODUCT_WARPS, _PRODUCT_STAGES
                tile_rows = min(_MOST_ROWS, tile_rows)
            tiles, tiles_down = triton.cdiv(shape[axis], tile), max(1, triton.cdiv(rank, tile_rows))
            splits = 1 if products is None else len(products)
            if tiles == 0:
                continue
            _multiply[(tiles * tiles_down * len(chosen) * splits,)](
                table,
                matrix if table is None else None,
                rows,
                inverse,
                sketch,
                products,
                sums,
                through,
                thin,
                len(chosen),
                tiles,
                tiles_down,
                triton.cdiv(triton.cdiv(shape[1 - axis], splits), summed) * summed,
                rank,
                shape[axis],
                shape[1 - axis],
                matrix_block,
                *_strides(rows),
                _strides(sketch)[0],
                *_strides(thin),
                steps[axis],
                steps[1 - axis],
                weight,
                PRECISION=_INPUTS[precision],
                TYPE=DTYPES[matrix.dtype],
                INDEX=_index_type((matrix, rows, sketch, products, through, thin)),
                IS_ALIGNED=is_aligned,
                TILE_ROWS=tile_rows,
                TILE=tile,
                TILE_SUMMED=summed,
                num_warps=warps,
                num_stages=stages,
            )


def _group_by_layout(*lists: Sequence[Tensor]) -> list[list[int]]:
    """Return the indices of the tensors that have the same strides and types."""
    layouts: dict[object, list[int]] = {}
    for index, tensors in enumerate(zip(*lists, strict=True)):
        layouts.setdefault(tuple((tensor.stride(), tensor.dtype) for tensor in tensors), []).append(index)
    return [*layouts.values()]


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make the operands' device current: Triton launches on the current device, wherever its operands are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _are_aligned(addresses: Iterable[int]) -> bool:
    return all(address % 16 == 0 for address in addresses)


def _index_type(tensors: Sequence[Tensor | None]) -> tl.dtype:
    """Return the type of positions in a matrix; blocks are counted in int64."""
    last = (
        sum((size - 1) * step for size, step in zip(tensor.shape[-2:], tensor.stride()[-2:], strict=True))
        for tensor in tensors
        if tensor is not None
    )
    return tl.int32 if max(last) < 2**31 else tl.int64


def _tile(rows: int, columns: int, *, is_product: bool) -> tuple[int, int]:
    """Return the rows and columns that a program moves at a time; a product needs 16 of both.

    An element for each thread at least: of fewer, Triton has several threads read one, without a barrier before another
    thread writes to it.
    """
    if is_product:
        sizes = zip((rows, columns), _LOW_RANK_TILE, strict=True)
        tile_rows, tile_columns = (max(16, min(limit, triton.next_power_of_2(length))) for length, limit in sizes)
        return tile_rows, tile_columns
    width = min(1024, triton.next_power_of_2(columns))
    least_rows = 32 * _WARPS // width
    return max(least_rows, min(_TILE_ELEMENTS // width, triton.next_power_of_2(rows))), width


def _strides(tensor: Tensor | None) -> tuple[int, int, int]:
    """Return the distances from block to block, row to row and column to column; 0 if all have the same value."""
    if tensor is None:
        return 0, 0, 0
    steps = [0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return 0 if len(steps) == 2 else steps[0], steps[-2], steps[-1]


@cache_tensors(maxsize=1024)
def _on_device(table: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the numbers on the device, passed as launch arguments: a CUDA graph could not repeat a copy from host
    memory."""
    tensor = torch.zeros(len(table), dtype=torch.int64, device=device)
    torch._foreach_add_(list(tensor.unbind()), list(table))
    return tensor


@triton.jit
def _move(
    table: tl.tensor,
    left: tl.tensor,
    right: tl.tensor,
    divisor: tl.tensor,
    numbers: tl.tensor,
    blocks: tl.tensor,
    tiles: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    weight_row: tl.tensor,
    weight_column: tl.tensor,
    gradient_row: tl.tensor,
    gradient_column: tl.tensor,
    divisor_block: tl.tensor,
    divisor_row: tl.tensor,
    divisor_column: tl.tensor,
    first_place: tl.tensor,
    place_row: tl.tensor,
    HAS_AVERAGE: tl.constexpr,
    V: tl.constexpr,
    BY_CHANCE: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHT: tl.constexpr,
    GRADIENT: tl.constexpr,
    STATE: tl.constexpr,
    INDEX: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_DEPTH: tl.constexpr,
) -> None:
    """Move one tile of one block, or whole rows where V is "row"."""
    block = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    tiles_across = 1 if V == "row" else tl.cdiv(columns, TILE_COLUMNS)
    row = ((tile // tiles_across) * TILE_ROWS + tl.arange(0, TILE_ROWS)).to(INDEX)
    row_is_there = row < rows
    weights = _pointer(table, block, WEIGHT, IS_ALIGNED)
    gradients = _pointer(table + blocks, block, GRADIENT, IS_ALIGNED)
    averages = _pointer(table + 2 * blocks, block, STATE, IS_ALIGNED)
    moments = _pointer(table + 3 * blocks, block, STATE, IS_ALIGNED)
    place_of_block = tl.load(table + 4 * blocks + block)

    first, past = (tile % tiles_across) * TILE_COLUMNS, (tile % tiles_across + 1) * TILE_COLUMNS
    if V == "row":
        first, past = 0, columns
        squares = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=tl.float32)
        for start in range(0, columns, TILE_COLUMNS):
            column = (start + tl.arange(0, TILE_COLUMNS)).to(INDEX)
            is_there = row_is_there[:, None] & (column < columns)[None, :]
            places = row[:, None] * gradient_row + column[None, :] * gradient_column
            gradient = tl.load(gradients + places, mask=is_there, other=0.0).to(tl.float32)
            squares += gradient * gradient
        mean = tl.sum(squares, axis=1) / columns
        moment = tl.load(moments + row, mask=row_is_there, other=0.0).to(tl.float32)
        moment = moment * tl.load(numbers + 2) + mean * tl.load(numbers + 3)
        tl.debug_barrier()  # v of a row is read by all threads before one writes it
        tl.store(moments + row, _to_state(moment, STATE), mask=row_is_there)
        root = (tl.sqrt_rn(moment) * tl.load(numbers + 4) + tl.load(numbers + 5))[:, None]

    for start in range(first, past, TILE_COLUMNS):
        column = (start + tl.arange(0, TILE_COLUMNS)).to(INDEX)
        is_there = row_is_there[:, None] & (column < columns)[None, :]
        places = row[:, None] * gradient_row + column[None, :] * gradient_column
        gradient = tl.load(gradients + places, mask=is_there, other=0.0).to(tl.float32)

        if HAS_AVERAGE:
            places = row[:, None] * columns + column[None, :]  # without gaps, as state lies
            average = tl.load(averages + places, mask=is_there, other=0.0).to(tl.float32)
            average += tl.load(numbers + 9) * (gradient - average)
            tl.store(averages + places, _to_state(average, STATE), mask=is_there)
            numerator = average * tl.load(numbers + 1)
        elif left is not None:
            product = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=tl.float32)
            for begin in range(0, depth, TILE_DEPTH):
                inner = (begin + tl.arange(0, TILE_DEPTH)).to(INDEX)
                left_places = place_of_block * rows * depth + row[:, None] * depth + inner[None, :]
                a = tl.load(left + left_places, mask=row_is_there[:, None] & (inner < depth)[None, :], other=0.0)
                right_places = place_of_block * depth * columns + inner[:, None] * columns + column[None, :]
                b = tl.load(
                    right + right_places, mask=(inner < depth)[:, None] & (column < columns)[None, :], other=0.0
                )
                product = tl.dot(a, b, product, input_precision=PRECISION)
            numerator = gradient * tl.load(numbers) + product * tl.load(numbers + 1)
        else:
            numerator = gradient * tl.load(numbers)

        if V == "element":
            places = row[:, None] * columns + column[None, :]
            moment = tl.load(moments + places, mask=is_there, other=0.0).to(tl.float32)
            moment = moment * tl.load(numbers + 2) + gradient * gradient * tl.load(numbers + 3)
            tl.store(moments + places, _to_state(moment, STATE), mask=is_there)
            root = tl.sqrt_rn(moment) * tl.load(numbers + 4) + tl.load(numbers + 5)
        if V == "given":
            places = place_of_block * divisor_block + row[:, None] * divisor_row + column[None, :] * divisor_column
            root = tl.load(divisor + places, mask=is_there, other=1.0)

        bound = tl.load(numbers + 6)
        update = tl.clamp(tl.div_rn(numerator, root), -bound, bound, propagate_nan=tl.PropagateNan.ALL)
        places = row[:, None] * weight_row + column[None, :] * weight_column
        weight = tl.load(weights + places, mask=is_there, other=0.0).to(tl.float32)
        weight = weight * tl.load(numbers + 7) - update * tl.load(numbers + 8)
        if BY_CHANCE:
            keys = table + 5 * blocks + block
            position = (first_place + row[:, None] * place_row + column[None, :]).to(tl.int32)
            bits = _hash(position, tl.load(keys).to(tl.int32), tl.load(keys + blocks).to(tl.int32)) >> 16 & 0xFFFF
            tl.store(weights + places, _round_by_chance(weight, bits), mask=is_there)
        else:
            tl.store(weights + places, _to_state(weight, WEIGHT), mask=is_there)


@triton.jit
def _multiply(
    table: tl.tensor,
    matrices: tl.tensor,
    rows: tl.tensor,
    inverse: tl.tensor,
    sketch: tl.tensor,
    products: tl.tensor,
    sums: tl.tensor,
    coefficients: tl.tensor,
    thin: tl.tensor,
    blocks: tl.tensor,
    tiles: tl.tensor,
    tiles_down: tl.tensor,
    longest: tl.tensor,
    count: tl.tensor,
    length: tl.tensor,
    summed: tl.tensor,
    matrix_block: tl.tensor,
    rows_block: tl.tensor,
    rows_row: tl.tensor,
    rows_column: tl.tensor,
    sketch_block: tl.tensor,
    thin_block: tl.tensor,
    thin_row: tl.tensor,
    thin_column: tl.tensor,
    step: tl.tensor,
    step_summed: tl.tensor,
    weight: tl.tensor,
    PRECISION: tl.constexpr,
    TYPE: tl.constexpr,
    INDEX: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_SUMMED: tl.constexpr,
) -> None:
    """Compute some columns of some rows of one product, over `longest` of what is summed; and sums of squares, in the
    same order every time."""
    tile = tl.program_id(0) % (tiles * tiles_down)
    block = tl.program_id(0) // (tiles * tiles_down) % blocks
    split = tl.program_id(0) // (tiles * tiles_down * blocks)
    column = ((tile // tiles_down) * TILE + tl.arange(0, TILE)).to(INDEX)
    row = ((tile % tiles_down) * TILE_ROWS + tl.arange(0, TILE_ROWS)).to(INDEX)
    if table is not None:
        matrix = _pointer(table, block, TYPE, IS_ALIGNED)
        place_of_block = tl.load(table + blocks + block)
    else:
        place_of_block = block.to(tl.int64)
        matrix = matrices + place_of_block * matrix_block
    if rows is not None:
        SUM: tl.constexpr = products.dtype.element_ty
        xs = rows + place_of_block * rows_block + row * rows_row
        scale = tl.full((TILE_ROWS,), 1.0, dtype=tl.float32)
        ss = xs
        if inverse is not None:
            scale = tl.load(inverse + place_of_block * count + row, mask=row < count, other=1.0)
            ss = sketch + place_of_block * sketch_block + row * summed
        product = tl.zeros((TILE_ROWS, TILE), dtype=SUM)
    squares = tl.zeros((TILE_SUMMED, TILE), dtype=tl.float32)
    for start in range(split * longest, tl.minimum((split + 1) * longest, summed), TILE_SUMMED):
        depth = (start + tl.arange(0, TILE_SUMMED)).to(INDEX)
        is_there = (depth < summed)[:, None] & (column < length)[None, :]
        value = tl.load(matrix + depth[:, None] * step_summed + column[None, :] * step, mask=is_there, other=0.0)
        value = value.to(tl.float32)
        if rows is not None:
            is_there = (row < count)[:, None] & (depth < summed)[None, :]
            if inverse is not None:
                is_weak = (scale == 0.0)[:, None]
                x = tl.load(
                    xs[:, None] + depth[None, :] * rows_column, mask=is_there & (scale != 0.0)[:, None], other=0.0
                )
                s = tl.load(ss[:, None] + depth[None, :], mask=is_there & is_weak, other=0.0)
                x = tl.where(is_weak, s, x * scale[:, None])
            else:
                x = tl.load(xs[:, None] + depth[None, :] * rows_column, mask=is_there, other=0.0)
            if tl.float64 == SUM:
                product = tl.dot(x.to(SUM), value.to(SUM), product, input_precision="ieee", out_dtype=SUM)
            else:
                product = tl.dot(x, value, product, input_precision=PRECISION)
        if sums is not None:
            squares += value * value
    if thin is not None:
        ts = coefficients + place_of_block * count * count + row * count
        factor = thin + place_of_block * thin_block + column * thin_column
        other_part = tl.zeros((TILE_ROWS, TILE), dtype=tl.float32)
        for start in range(0, count, TILE_SUMMED):
            inner = (start + tl.arange(0, TILE_SUMMED)).to(INDEX)
            is_there = (row < count)[:, None] & (inner < count)[None, :]
            t = tl.load(ts[:, None] + inner[None, :], mask=is_there, other=0.0)
            is_there = (inner < count)[:, None] & (column < length)[None, :]
            value = tl.load(factor[None, :] + inner[:, None] * thin_row, mask=is_there, other=0.0)
            other_part = tl.dot(t, value, other_part, input_precision="tf32x3")
        product = product * (1.0 - weight) + other_part * weight
    if rows is not None:
        begin = products + (split * blocks + place_of_block) * count * length
        is_there = (row < count)[:, None] & (column < length)[None, :]
        tl.store(begin + row[:, None] * length + column[None, :], product, mask=is_there)
    if sums is not None:
        is_here = (column < length) & (tile % tiles_down == 0)
        tl.store(sums + place_of_block * length + column, tl.sum(squares, axis=0), mask=is_here)


@triton.jit
def _pointer(table: tl.tensor, index: tl.tensor, TYPE: tl.constexpr, IS_ALIGNED: tl.constexpr) -> tl.tensor:
    """Return the pointer to that block."""
    pointer = tl.load(table + index).to(tl.pointer_type(TYPE))
    return tl.multiple_of(pointer, 16) if IS_ALIGNED else pointer


@triton.jit
def _to_state(exact: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """Round float32 to the nearest value of that type, ties to even."""
    if tl.bfloat16 == TYPE:
        bits = exact.to(tl.int32, bitcast=True)
        increment = (bits >> 16 & 1) + 0x7FFF
        rounded = (tl.add(bits, increment, sanitize_overflow=False) & -0x10000).to(tl.float32, bitcast=True)
        exact = tl.where(exact == exact, rounded, exact)
    return exact.to(TYPE)


@triton.jit
def _round_by_chance(exact: tl.tensor, chances: tl.tensor) -> tl.tensor:
    """Round like `rounding.round_stochastically`: the random part has 16 bits."""
    bits = exact.to(tl.int32, bitcast=True)
    rounded = (tl.add(bits, chances, sanitize_overflow=False) & -0x10000).to(tl.float32, bitcast=True)
    is_usable = (tl.abs(rounded) < float("inf")) & (tl.abs(exact) < float("inf"))
    return tl.where(is_usable, rounded, _to_state(exact, tl.bfloat16).to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _hash(places: tl.tensor, factor: tl.tensor, addend: tl.tensor) -> tl.tensor:
    """Return the hash of `rounding._hash`, in 32 bits that wrap around."""
    x = tl.add(tl.mul(places, factor, sanitize_overflow=False), addend, sanitize_overflow=False)
    x = x ^ (x >> 16 & 0xFFFF)
    x = tl.mul(x, 0x7FEB352D, sanitize_overflow=False)
    x = x ^ (x >> 15 & 0x1FFFF)
    x = tl.mul(x, -0x7B935975, sanitize_overflow=False)
    return x ^ (x >> 16 & 0xFFFF)
