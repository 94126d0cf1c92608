"""Triton kernels of a step. One moves all blocks of a batch at once, and reads and writes each value once:

    m = A B + weight_of_gradient G                    low-rank momentum; the 2r-deep product never leaves the chip
    m = m + (1 - b1) (G - m)                          full momentum
    v = b2 v + (1 - b2) G * G                         where v is kept for each element
    v = v + (1 - b2) (mean of a row of G * G - v)     where each row keeps one; other shared v are worked out before
    W = (1 - lr wd) W - lr clip(m / (sqrt(v / debias) + eps), c)

Two read gradients alone: their products with thin matrices in TF32, with the sums of squares that a shared v needs, and
those sums by themselves. In IEEE float32 torch's own products are faster, of gradients that are copied side by side.

A batch is one launch: the addresses of its blocks are a table on the device, so that they lie wherever their parameters
do. A program moves a tile of a block, or whole rows where each row keeps one v: what it reads of G a second time is in
the cache. Arithmetic is in float32. Weights and state of bfloat16 are rounded here in integers, to the nearest or by
chance (`rounding.py`), so that Triton's interpreter, which would cut them off, does as a GPU does.

This is the only module that imports Triton; `compiled.py` says where it is used, and `step.py` has the same formulas in
torch's operators. Under `TRITON_INTERPRET=1` it runs on a CPU.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .devices import made_once, times, times_transposed
from .low_rank import Factors, Momentum
from .rounding import RoundingKey

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
# Compiled for an H100 these take 128 registers a thread with the product, 64 without: 16 and 32 warps a multiprocessor.
_TILE_ELEMENTS = 4096
_PRODUCT_TILE = 64
_PRODUCT_DEPTH = 32
"""Columns of A and rows of B at a time."""
_SUM_TILES = ((4, 1024), (64, 64))
"""Sums at a time, and squares of each at a time: where squares lie side by side, and where sums do."""
_WARPS = 8


def is_supported(dtype: torch.dtype) -> bool:
    """Whether the kernel takes values of that type; those of float64 are left to torch's operators."""
    return dtype in _DTYPES


def try_on(device: torch.device) -> None:
    """Move a small low-rank block there by the kernel, and by torch's operators; waits for the device.

    Raises:
        RuntimeError: they do not agree, or there is no driver, or no C compiler for Triton's launcher.
        TritonError: the kernel cannot be compiled for that device.
    """
    weight, gradient, moment = (torch.linspace(-1.0, 1.0, 33 * 70, device=device).view(33, 70) for _ in range(3))
    factors = Factors(gradient[:, :5].contiguous(), gradient[:5].contiguous())
    moment = moment.square() + 0.1
    numbers = torch.tensor([0.5, 2.0, 0.9, 0.1, 1.0, 1e-8, 1.0, 0.9, 0.1, 0.1], device=device)
    root = (0.9 * moment + 0.1 * gradient.square()).sqrt() + 1e-8
    expected = 0.9 * weight - 0.1 * ((0.5 * gradient + 2.0 * factors.left @ factors.right) / root).clamp(-1.0, 1.0)
    move(Blocks([weight], [gradient.clone()], [], [moment]), factors, None, numbers)
    if not torch.allclose(weight, expected, rtol=1e-3, atol=1e-3):
        raise RuntimeError("it does not agree with torch's operators")


class Blocks(NamedTuple):
    """Blocks of one shape m × n and one kind: of each list as many as there are blocks, and all of one type."""

    weights: Sequence[Tensor]
    """W, changed in place."""
    gradients: Sequence[Tensor]
    averages: Sequence[Tensor]
    """m of full momentum, changed in place; empty for other blocks."""
    moments: Sequence[Tensor]
    """v of each element (m × n) or of each row (m), changed in place; empty where there is a divisor."""


class Chances(NamedTuple):
    """How bfloat16 weights are rounded by chance."""

    keys: Sequence[RoundingKey]
    """One a block."""
    origin: Sequence[int]
    """Row and column of the whole block at which each of these blocks begins; empty for 0, 0."""
    columns: int
    """Of the whole block."""


def move(
    blocks: Blocks,
    factors: Factors | None,
    divisor: Tensor | None,
    numbers: Tensor,
    *,
    chances: Chances | None = None,
    precision: str = "ieee",
) -> None:
    """Move blocks, and what is kept of their moments. Addresses go to the device where they are not those of before.

    Args:
        blocks: What is moved.
        factors: A (B × m × 2r) and B (B × 2r × n) of low-rank blocks; without the leading B for a single one.
        divisor: sqrt(v / debias) + eps, B × m × 1 or B × 1 × n, where it has been worked out before; as for factors.
        numbers: On the device, in float32: as `compiled.move` has them, and 1 - b1.
        chances: Where weights are rounded by chance.
        precision: Of the product A B: "ieee" or "tf32".
    """
    if blocks.weights[0].numel() == 0:
        return
    layouts: dict[object, list[int]] = {}
    for index, tensors in enumerate(zip(*(each for each in blocks if each), strict=True)):
        layouts.setdefault(tuple((tensor.stride(), tensor.dtype) for tensor in tensors), []).append(index)
    with _current(numbers.device):
        for chosen in layouts.values():
            _launch(blocks, chosen, factors, divisor, numbers, chances, precision)


@dataclass(frozen=True, kw_only=True)
class SpreadMomentum(Momentum):
    """M of blocks whose gradients lie where their parameters' do: B of them, or one. Products with them are in TF32."""

    gradients: Sequence[Tensor]
    """G of each, outputs × inputs; `gradient` is the first of them."""
    square_sums: list[Tensor] = field(default_factory=list)
    """The sums of squares of each output of each G, in a row for each, once `rows_times_transposed` has been called."""

    def rows_times_transposed(self, rows: Tensor) -> Tensor:
        """X M^T (r × outputs), for r rows X."""
        through_carried = times_transposed(times_transposed(rows, self.carried.right), self.carried.left)
        sums = None
        if not self.square_sums:
            sums = rows.new_empty((len(self.gradients), self.gradients[0].shape[0]))
            self.square_sums.append(sums)
        return multiply(rows, self.gradients, axis=0, sums=sums, onto=through_carried, weight=1.0 - self.beta1)

    def rows_times(self, rows: Tensor) -> Tensor:
        """X M (r × inputs), for r rows X."""
        through_carried = times(times(rows, self.carried.left), self.carried.right)
        return multiply(rows, self.gradients, axis=1, onto=through_carried, weight=1.0 - self.beta1)


def square_sums_of(momentum: Momentum) -> Tensor | None:
    """Those that a `SpreadMomentum` has found on the way."""
    return momentum.square_sums[0] if isinstance(momentum, SpreadMomentum) and momentum.square_sums else None


def multiply(
    rows: Tensor,
    matrices: Sequence[Tensor],
    *,
    axis: int,
    sums: Tensor | None = None,
    onto: Tensor | None = None,
    weight: float = 1.0,
) -> Tensor:
    """X G^T (axis 0) or X G (axis 1) in TF32, in one launch where the matrices' values lie the same strides apart.

    Args:
        rows: X of each, B × r × n (or m), or r × n of a single one.
        matrices: G of each, m × n.
        axis: Of G that stays.
        sums: B × m (or n): the sums of squares along the other axis are written here.
        onto: B × r × m (or n), contiguous: becomes (1 - weight) onto + weight X G^T (or X G).
        weight: Of the product, where there is something to add it to.

    Returns:
        B × r × m (or n), as `rows` has it.
    """
    several = rows if rows.ndim == 3 else rows[None]
    shape = (*several.shape[:2], matrices[0].shape[axis])
    found = several.new_empty(shape) if onto is None else onto.view(shape)
    share = None if onto is None else weight
    layouts: dict[object, list[int]] = {}
    for index, matrix in enumerate(matrices):
        layouts.setdefault((matrix.stride(), matrix.dtype), []).append(index)
    with _current(rows.device):
        for chosen in layouts.values():
            if len(layouts) == 1:
                _launch_product(several, matrices, found, sums, axis, share)
                continue
            some = torch.tensor(chosen, device=rows.device)
            part = found[some]
            part_sums = None if sums is None else sums[some]
            _launch_product(several[some], [matrices[index] for index in chosen], part, part_sums, axis, share)
            found[some] = part
            if sums is not None and part_sums is not None:
                sums[some] = part_sums
    return found if rows.ndim == 3 else found[0]


def square_sums(gradients: Sequence[Tensor], *, axis: int) -> Tensor:
    """Sums of squares, in float32, of each row (axis 0) or column (axis 1) of matrices of one shape: a row for each."""
    sums = torch.empty((len(gradients), gradients[0].shape[axis]), dtype=torch.float32, device=gradients[0].device)
    layouts: dict[object, list[int]] = {}
    for index, gradient in enumerate(gradients):
        layouts.setdefault((gradient.stride(), gradient.dtype), []).append(index)
    with _current(sums.device):
        for chosen in layouts.values():
            found = sums if len(chosen) == len(gradients) else torch.empty_like(sums[: len(chosen)])
            _launch_sums([gradients[index] for index in chosen], found, axis)
            if found is not sums:
                sums[torch.tensor(chosen, device=sums.device)] = found
    return sums


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, whatever device its operands are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _launch(
    blocks: Blocks,
    chosen: Sequence[int],
    factors: Factors | None,
    divisor: Tensor | None,
    numbers: Tensor,
    chances: Chances | None,
    precision: str,
) -> None:
    """Move those of the blocks in one launch: their values lie the same strides apart."""
    addresses = tuple(each[index].data_ptr() if each else 0 for each in blocks for index in chosen)
    keys = () if chances is None else tuple(chances.keys[index][part] for part in (0, 1) for index in chosen)
    weight, gradient = blocks.weights[chosen[0]], blocks.gradients[chosen[0]]
    average = blocks.averages[chosen[0]] if blocks.averages else None
    moment = blocks.moments[chosen[0]] if blocks.moments else None
    rows, columns = weight.shape
    means_rows = moment is not None and moment.ndim == 1
    if len(chosen) < len(blocks.weights):
        picked = torch.tensor(chosen, device=weight.device)
        factors = None if factors is None else Factors(factors.left[picked], factors.right[picked])
        divisor = None if divisor is None else divisor[picked]
    left, right = factors or (None, None)
    tile_rows, tile_columns = _tile(rows, columns, is_product=factors is not None)
    tiles = triton.cdiv(rows, tile_rows) * (1 if means_rows else triton.cdiv(columns, tile_columns))
    state = moment if moment is not None else average
    _move[(tiles * len(chosen),)](
        _on_device((*addresses, *keys), weight.device),
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
        *(average.stride() if average is not None else (0, 0)),
        *((0, 0) if moment is None else (*moment.stride(), 0)[:2]),
        *_strides(left),
        *_strides(right),
        *_strides(divisor),
        *(chances.origin if chances is not None and chances.origin else (0, 0)),
        0 if chances is None else chances.columns,
        HAS_AVERAGE=average is not None,
        V="given" if moment is None else "row" if means_rows else "element",
        BY_CHANCE=chances is not None,
        PRECISION=precision,
        WEIGHT=_DTYPES[weight.dtype],
        GRADIENT=_DTYPES[gradient.dtype],
        STATE=_DTYPES[torch.float32 if state is None else state.dtype],
        INDEX=_index_type([each for each in (weight, gradient, average, moment) if each is not None]),
        IS_ALIGNED=all(address % 16 == 0 for address in addresses),
        TILE_ROWS=tile_rows,
        TILE_COLUMNS=tile_columns,
        TILE_DEPTH=_PRODUCT_DEPTH,
        num_warps=_WARPS,
        num_stages=2,
    )


def _launch_sums(gradients: Sequence[Tensor], sums: Tensor, axis: int) -> None:
    """Fill in the sums of matrices whose values lie the same strides apart."""
    addresses = tuple(gradient.data_ptr() for gradient in gradients)
    shape, steps = gradients[0].shape, gradients[0].stride()
    tile = _SUM_TILES[0 if steps[1 - axis] == 1 else 1]
    tiles = triton.cdiv(shape[axis], tile[0])
    if tiles > 0:
        _sum_squares[(tiles * len(gradients),)](
            _on_device(addresses, sums.device),
            sums,
            tiles,
            shape[axis],
            shape[1 - axis],
            steps[axis],
            steps[1 - axis],
            TYPE=_DTYPES[gradients[0].dtype],
            INDEX=_index_type(gradients[:1]),
            IS_ALIGNED=all(address % 16 == 0 for address in addresses),
            TILE=tile[0],
            TILE_SUMMED=tile[1],
            num_warps=_WARPS,
        )


def _launch_product(
    rows: Tensor,
    matrices: Sequence[Tensor],
    found: Tensor,
    sums: Tensor | None,
    axis: int,
    share: float | None,
) -> None:
    """Fill in the products, or add their share, and sums, of matrices whose values lie the same strides apart."""
    addresses = tuple(matrix.data_ptr() for matrix in matrices)
    shape, steps = matrices[0].shape, matrices[0].stride()
    tiles = triton.cdiv(shape[axis], _PRODUCT_TILE)
    if tiles > 0:
        _multiply[(tiles * len(matrices),)](
            _on_device(addresses, rows.device),
            rows,
            found,
            sums,
            tiles,
            rows.shape[1],
            shape[axis],
            shape[1 - axis],
            *rows.stride(),
            steps[axis],
            steps[1 - axis],
            1.0 if share is None else share,
            ADDS=share is not None,
            TYPE=_DTYPES[matrices[0].dtype],
            INDEX=_index_type(matrices[:1]),
            IS_ALIGNED=all(address % 16 == 0 for address in addresses),
            TILE_ROWS=max(16, triton.next_power_of_2(rows.shape[1])),
            TILE=_PRODUCT_TILE,
            TILE_SUMMED=_PRODUCT_DEPTH,
            num_warps=_WARPS,
            num_stages=3,
        )


def _index_type(tensors: Sequence[Tensor]) -> tl.dtype:
    """Of the places of their elements."""
    last = (sum((size - 1) * step for size, step in zip(each.shape, each.stride(), strict=True)) for each in tensors)
    return tl.int32 if max(last) < 2**31 else tl.int64


def _tile(rows: int, columns: int, *, is_product: bool) -> tuple[int, int]:
    """Rows and columns that a program moves at a time; a product needs 16 of both."""
    if is_product:
        size = [max(16, min(_PRODUCT_TILE, triton.next_power_of_2(length))) for length in (rows, columns)]
        return size[0], size[1]
    across = min(1024, triton.next_power_of_2(columns))
    return min(_TILE_ELEMENTS // across, triton.next_power_of_2(rows)), across


def _strides(tensor: Tensor | None) -> tuple[int, int, int]:
    """From block to block, row to row and column to column; 0 where all have the same value."""
    if tensor is None:
        return 0, 0, 0
    steps = [0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return 0 if len(steps) == 2 else steps[0], steps[-2], steps[-1]


@made_once(maxsize=1024)
def _on_device(table: tuple[int, ...], device: torch.device) -> Tensor:
    """Filled in there, as arguments of launches: a CUDA graph could not repeat a copy from the host's memory."""
    found = torch.zeros(len(table), dtype=torch.int64, device=device)
    torch._foreach_add_(list(found.unbind()), list(table))
    return found


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
    average_row: tl.tensor,
    average_column: tl.tensor,
    moment_row: tl.tensor,
    moment_column: tl.tensor,
    left_block: tl.tensor,
    left_row: tl.tensor,
    left_depth: tl.tensor,
    right_block: tl.tensor,
    right_depth: tl.tensor,
    right_column: tl.tensor,
    divisor_block: tl.tensor,
    divisor_row: tl.tensor,
    divisor_column: tl.tensor,
    origin_row: tl.tensor,
    origin_column: tl.tensor,
    whole_columns: tl.tensor,
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

    first, past = (tile % tiles_across) * TILE_COLUMNS, (tile % tiles_across + 1) * TILE_COLUMNS
    if V == "row":
        first, past = 0, columns
        squares = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=tl.float32)
        for start in range(0, columns, TILE_COLUMNS):
            column = (start + tl.arange(0, TILE_COLUMNS)).to(INDEX)
            there = row_is_there[:, None] & (column < columns)[None, :]
            places = row[:, None] * gradient_row + column[None, :] * gradient_column
            gradient = tl.load(gradients + places, mask=there, other=0.0).to(tl.float32)
            squares += gradient * gradient
        mean = tl.sum(squares, axis=1) / columns
        moment = tl.load(moments + row * moment_row, mask=row_is_there, other=0.0).to(tl.float32)
        moment += tl.load(numbers + 3) * (mean - moment)
        tl.store(moments + row * moment_row, _to_state(moment, STATE), mask=row_is_there)
        root = (tl.sqrt_rn(moment) * tl.load(numbers + 4) + tl.load(numbers + 5))[:, None]

    for start in range(first, past, TILE_COLUMNS):
        column = (start + tl.arange(0, TILE_COLUMNS)).to(INDEX)
        there = row_is_there[:, None] & (column < columns)[None, :]
        places = row[:, None] * gradient_row + column[None, :] * gradient_column
        gradient = tl.load(gradients + places, mask=there, other=0.0).to(tl.float32)

        if HAS_AVERAGE:
            places = row[:, None] * average_row + column[None, :] * average_column
            average = tl.load(averages + places, mask=there, other=0.0).to(tl.float32)
            average += tl.load(numbers + 9) * (gradient - average)
            tl.store(averages + places, _to_state(average, STATE), mask=there)
            numerator = average * tl.load(numbers + 1)
        else:
            numerator = gradient * tl.load(numbers)
            if left is not None:
                lefts = left + block.to(tl.int64) * left_block + row * left_row
                rights = right + block.to(tl.int64) * right_block + column * right_column
                product = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=tl.float32)
                for start_depth in range(0, depth, TILE_DEPTH):
                    inner = start_depth + tl.arange(0, TILE_DEPTH)
                    there_left = row_is_there[:, None] & (inner < depth)[None, :]
                    there_right = (inner < depth)[:, None] & (column < columns)[None, :]
                    a = tl.load(lefts[:, None] + inner[None, :] * left_depth, mask=there_left, other=0.0)
                    b = tl.load(rights[None, :] + inner[:, None] * right_depth, mask=there_right, other=0.0)
                    product = tl.dot(a, b, product, input_precision=PRECISION)
                numerator += product * tl.load(numbers + 1)

        if V == "element":
            places = row[:, None] * moment_row + column[None, :] * moment_column
            moment = tl.load(moments + places, mask=there, other=0.0).to(tl.float32)
            moment = moment * tl.load(numbers + 2) + gradient * gradient * tl.load(numbers + 3)
            tl.store(moments + places, _to_state(moment, STATE), mask=there)
            root = tl.sqrt_rn(moment) * tl.load(numbers + 4) + tl.load(numbers + 5)
        if V == "given":
            places = block * divisor_block + row[:, None] * divisor_row + column[None, :] * divisor_column
            root = tl.load(divisor + places, mask=there, other=1.0)

        bound = tl.load(numbers + 6)
        update = tl.clamp(tl.div_rn(numerator, root), -bound, bound, propagate_nan=tl.PropagateNan.ALL)
        places = row[:, None] * weight_row + column[None, :] * weight_column
        weight = tl.load(weights + places, mask=there, other=0.0).to(tl.float32)
        weight = weight * tl.load(numbers + 7) - update * tl.load(numbers + 8)
        if BY_CHANCE:
            factor = tl.load(table + 4 * blocks + block).to(tl.int32)
            addend = tl.load(table + 5 * blocks + block).to(tl.int32)
            place = (row + origin_row)[:, None] * whole_columns + (column + origin_column)[None, :]
            bits = _hash(place.to(tl.int32), factor, addend) >> 16 & 0xFFFF
            tl.store(weights + places, _round_by_chance(weight, bits), mask=there)
        else:
            tl.store(weights + places, _to_state(weight, WEIGHT), mask=there)


@triton.jit
def _sum_squares(
    table: tl.tensor,
    sums: tl.tensor,
    tiles: tl.tensor,
    length: tl.tensor,
    summed: tl.tensor,
    step: tl.tensor,
    step_summed: tl.tensor,
    TYPE: tl.constexpr,
    INDEX: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    TILE: tl.constexpr,
    TILE_SUMMED: tl.constexpr,
) -> None:
    """Some sums of one matrix; in the same order every time."""
    block = tl.program_id(0) // tiles
    place = ((tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)).to(INDEX)
    matrix = _pointer(table, block, TYPE, IS_ALIGNED)
    squares = tl.zeros((TILE, TILE_SUMMED), dtype=tl.float32)
    for start in range(0, summed, TILE_SUMMED):
        other = (start + tl.arange(0, TILE_SUMMED)).to(INDEX)
        there = (place < length)[:, None] & (other < summed)[None, :]
        value = tl.load(matrix + place[:, None] * step + other[None, :] * step_summed, mask=there, other=0.0)
        squares += value.to(tl.float32) * value.to(tl.float32)
    tl.store(sums + block * length + place, tl.sum(squares, axis=1), mask=place < length)


@triton.jit
def _multiply(
    table: tl.tensor,
    rows: tl.tensor,
    found: tl.tensor,
    sums: tl.tensor,
    tiles: tl.tensor,
    count: tl.tensor,
    length: tl.tensor,
    summed: tl.tensor,
    rows_block: tl.tensor,
    rows_row: tl.tensor,
    rows_column: tl.tensor,
    step: tl.tensor,
    step_summed: tl.tensor,
    share: tl.tensor,
    ADDS: tl.constexpr,
    TYPE: tl.constexpr,
    INDEX: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    TILE_SUMMED: tl.constexpr,
) -> None:
    """Some columns of one product."""
    block = tl.program_id(0) // tiles
    place = ((tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)).to(INDEX)
    row = tl.arange(0, TILE_ROWS)
    matrix = _pointer(table, block, TYPE, IS_ALIGNED)
    thin = rows + block.to(tl.int64) * rows_block + row * rows_row
    product = tl.zeros((TILE_ROWS, TILE), dtype=tl.float32)
    squares = tl.zeros((TILE_SUMMED, TILE), dtype=tl.float32)
    for start in range(0, summed, TILE_SUMMED):
        other = (start + tl.arange(0, TILE_SUMMED)).to(INDEX)
        there = (other < summed)[:, None] & (place < length)[None, :]
        value = tl.load(matrix + other[:, None] * step_summed + place[None, :] * step, mask=there, other=0.0)
        value = value.to(tl.float32)
        x = tl.load(
            thin[:, None] + other[None, :] * rows_column,
            mask=(row < count)[:, None] & (other < summed)[None, :],
            other=0.0,
        )
        product = tl.dot(x, value, product, input_precision="tf32")
        if sums is not None:
            squares += value * value
    places = found + block.to(tl.int64) * count * length + row[:, None] * length + place[None, :]
    there = (row < count)[:, None] & (place < length)[None, :]
    if ADDS:
        before = tl.load(places, mask=there, other=0.0)
        product = before + share * (product - before)
    tl.store(places, product, mask=there)
    if sums is not None:
        tl.store(sums + block * length + place, tl.sum(squares, axis=0), mask=place < length)


@triton.jit
def _pointer(table: tl.tensor, index: tl.tensor, TYPE: tl.constexpr, IS_ALIGNED: tl.constexpr) -> tl.tensor:
    """What the address of that block points to."""
    pointer = tl.load(table + index).to(tl.pointer_type(TYPE))
    return tl.multiple_of(pointer, 16) if IS_ALIGNED else pointer


@triton.jit
def _to_state(exact: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """float32 rounded to the nearest of that type, to the even one of two."""
    if tl.bfloat16 == TYPE:
        bits = exact.to(tl.int32, bitcast=True)
        up = (bits >> 16 & 1) + 0x7FFF
        rounded = (tl.add(bits, up, sanitize_overflow=False) & -0x10000).to(tl.float32, bitcast=True)
        exact = tl.where(exact == exact, rounded, exact)
    return exact.to(TYPE)


@triton.jit
def _round_by_chance(exact: tl.tensor, chances: tl.tensor) -> tl.tensor:
    """As `rounding.round_stochastically`: chances are 16 bits."""
    bits = exact.to(tl.int32, bitcast=True)
    rounded = (tl.add(bits, chances, sanitize_overflow=False) & -0x10000).to(tl.float32, bitcast=True)
    is_usable = (tl.abs(rounded) < float("inf")) & (tl.abs(exact) < float("inf"))
    return tl.where(is_usable, rounded, _to_state(exact, tl.bfloat16).to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _hash(places: tl.tensor, factor: tl.tensor, addend: tl.tensor) -> tl.tensor:
    """As `rounding._hash`, in 32 bits that wrap around."""
    x = tl.add(tl.mul(places, factor, sanitize_overflow=False), addend, sanitize_overflow=False)
    x = x ^ (x >> 16 & 0xFFFF)
    x = tl.mul(x, 0x7FEB352D, sanitize_overflow=False)
    x = x ^ (x >> 15 & 0x1FFFF)
    x = tl.mul(x, -0x7B935975, sanitize_overflow=False)
    return x ^ (x >> 16 & 0xFFFF)
