"""Low-rank blocks on an accelerator, where each call costs a launch: the algebra of many blocks' factors in one.

`step.py` bounds a batch by the elements of its gradients. Factors are some 5 % of that, so that far more blocks fit
into the same memory: a group has blocks of any shapes and of one rank, and its factors no more elements than a quarter
of the plan's largest block. In a group

* the blocks of one shape have their factors side by side, B × m × r and B × r × n: the state of each block is a view;
* gradients stay where they are. Products with them are written side by side: by our kernel for all blocks of a shape;
  else block by block, but for blocks so small that a launch would take longer than a copy of them;
* the r × r matrices of all blocks are worked out together (`solvers.subspace_bases`), with no word to the host.

Weights and second moments are moved by `step.update_batch`: where our kernel does it, all blocks of a shape at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from ..plan.blocks import FirstMoment
from . import devices
from .devices import lerp_product, times, times_transposed
from .eight_bit import EightBit, Stored
from .low_rank import Factors, Momentum, gaussian_sketch, mixed_factors, sketch_to_start_from, spare_sketch
from .options import StepSettings
from .solvers import SOLVERS
from .step import (
    Member,
    allowed_elements,
    cut_stack,
    join,
    kernels_for,
    limit_of,
    read,
    round_as_stored,
    round_into,
    split_into_batches,
    update_batch,
)

_COPIED_BELOW = 2**21
"""Elements of a block that are read and written in the time of a launch: 16 MiB at 4 TB/s take 4 us."""
_BLOCKS_TO_FACTORS = 4
"""The largest block has so many times the elements of a group's factors, of which a step takes a handful of copies."""


def suits_group(member: Member, settings: StepSettings) -> bool:
    """Whether `update_low_rank` is for blocks like these."""
    return (
        member.block.first_moment is FirstMoment.LOW_RANK
        and devices.is_accelerator(member.weight.device)
        and not SOLVERS[settings.solver].forms_momentum
    )


def update_low_rank(
    lists: Iterable[Sequence[Member]], settings: StepSettings, *, largest: int, compiles: bool = False
) -> None:
    """Move low-rank blocks, and their state.

    Args:
        lists: Blocks of one likeness each, all of one type, on one device; `suits_group` holds for them.
        settings: Of the parameters' group at the parameters' step.
        largest: Elements of the plan's largest block.
        compiles: As for `update_batch`.
    """
    for group in _split_into_groups(lists, limit=allowed_elements(largest) // _BLOCKS_TO_FACTORS):
        kernels = kernels_for(group[0][0]) if compiles and all(kernels_for(batch[0]) for batch in group) else None
        changes = _find_factors(group, settings, kernels, largest=largest)
        group.clear()
        while changes:
            change = changes.pop()
            mixed = mixed_factors(change.carried, change.current, settings.mixture)
            change.store()
            batch, squares = change.batch, change.squares
            del change
            if kernels is not None:
                update_batch(batch, settings, largest=largest, compiles=True, momentum=mixed, squares=squares)
                del mixed  # before that of the next batch is made
                continue
            for part, piece in _number_batches(split_into_batches(batch, largest=largest)):
                some = Factors(mixed.left[part], mixed.right[part])
                update_batch(piece, settings, largest=largest, compiles=compiles, momentum=some)
            del mixed, some


def _split_into_groups(lists: Iterable[Sequence[Member]], *, limit: int) -> Iterator[list[list[Member]]]:
    """Cut lists of like blocks into groups of batches: of one rank each, with so many elements of factors at most.

    A batch has blocks of one shape from different parameters, or is a stack of experts, or as much of it as may be.
    """
    by_rank: dict[int, list[Sequence[Member]]] = {}
    for members in lists:
        by_rank.setdefault(members[0].block.rank, []).append(members)
    for rank, alike in by_rank.items():
        group: list[list[Member]] = []
        elements = 0
        for members in alike:
            of_block = rank * sum(members[0].block.shape)
            singles: list[Member] | None = None
            for member in members:
                is_stack = len(member.blocks) > 1
                for piece in cut_stack(member, max(1, limit // of_block)):
                    size = len(piece.blocks) * of_block
                    if group and elements + size > limit:
                        yield group
                        group, singles, elements = [], None, 0
                    elements += size
                    if is_stack or singles is None:
                        group.append([])
                        singles = None if is_stack else group[-1]
                    group[-1].append(piece)
        yield group


def _number_batches(batches: Iterable[list[Member]]) -> Iterator[tuple[int | slice, list[Member]]]:
    """Batches with the places of their blocks among all: a number where it is a single block."""
    start = 0
    for batch in batches:
        stop = start + sum(len(member.blocks) for member in batch)
        yield (start if stop == start + 1 else slice(start, stop)), batch
        start = stop


class _Change(NamedTuple):
    """The factors of a batch before a step and after it, as they are carried, in the type of the arithmetic."""

    batch: Sequence[Member]
    stored: Sequence[Stored]
    """L and R as state keeps them, of all blocks side by side."""
    carried: Factors
    """Where it has that type, the state itself."""
    current: Factors
    squares: Tensor | None
    """The sums of squares of each output, where they were found on the way."""

    def store(self) -> None:
        """Let the new ones be the state, once what is carried is not needed any more."""
        for parts, whole, factor in zip(_stored_factors(self.batch), self.stored, self.current, strict=True):
            round_into([whole] if _shares_storage(parts[0], whole) else parts, factor)


def _read_factors(group: Sequence[Sequence[Member]]) -> tuple[list[list[Stored]], list[Factors]]:
    """L and R of each batch as state keeps them, side by side, and in the type of the arithmetic."""
    compute = torch.promote_types(group[0][0].weight.dtype, torch.float32)
    stored = [[_stack_stored(parts) for parts in _stored_factors(batch)] for batch in group]
    return stored, [Factors(*(read([whole], compute) for whole in wholes)) for wholes in stored]


def _sketches(
    group: Sequence[Sequence[Member]], carried: Sequence[Factors], settings: StepSettings
) -> list[Callable[[], Tensor]]:
    return [partial(_start_of, batch, factors, settings) for batch, factors in zip(group, carried, strict=True)]


def _find_factors(
    group: Sequence[Sequence[Member]], settings: StepSettings, kernels: ModuleType | None, *, largest: int
) -> list[_Change]:
    stored, carried = _read_factors(group)
    momenta = _momenta_of(group, carried, settings, kernels, largest=largest)
    found = SOLVERS[settings.solver].solve_together(
        momenta,
        iterations=settings.iterations,
        fresh=settings.fresh,
        sketches=_sketches(group, carried, settings),
    )
    squares = [None if kernels is None else kernels.square_sums_of(momentum) for momentum in momenta]
    momenta.clear()  # and with them copies of gradients
    changes = []
    for batch, factors, wholes, new, sums in zip(group, carried, stored, found, squares, strict=True):
        turned = new.transpose() if batch[0].block.output_axis == 1 else new
        # What will be carried, rounded to the state's type: the bias correction then makes up for the rounding as well.
        kept = Factors(*(round_as_stored([whole], factor) for whole, factor in zip(wholes, turned, strict=True)))
        changes.append(_Change(batch, wholes, factors, kept, sums))
    return changes


def _momenta_of(
    group: Sequence[Sequence[Member]],
    carried: Sequence[Factors],
    settings: StepSettings,
    kernels: ModuleType | None,
    *,
    largest: int,
) -> list[Momentum]:
    """M of each batch, outputs × inputs."""
    compute = carried[0].left.dtype
    room = limit_of(group[0][0].weight, largest=largest)
    momenta: list[Momentum] = []
    for batch, factors in zip(group, carried, strict=True):
        start = factors.transpose() if batch[0].block.output_axis == 1 else factors
        first, precision = _orient_gradient(batch[0]), settings.matmul_precision
        if kernels is not None:
            gradients = [_orient_gradient(single) for member in batch for single in cut_stack(member, 1)]
            momenta.append(kernels.SpreadMomentum(first, start, settings.beta1, precision, gradients=gradients))
            continue
        pieces, copied = _gradient_pieces(batch, compute, largest=largest, room=room)
        room -= copied
        momenta.append(ScatteredMomentum(first, start, settings.beta1, precision, pieces=pieces))
    return momenta


def _stored_factors(batch: Sequence[Member]) -> tuple[list[Stored], list[Stored]]:
    """L and R of each member."""
    return [one.state["momentum_left"] for one in batch], [one.state["momentum_right"] for one in batch]


def _stack_stored(parts: Sequence[Stored]) -> Stored:
    coded = [part for part in parts if isinstance(part, EightBit)]
    if not coded:
        return _stack([part for part in parts if isinstance(part, Tensor)])
    return EightBit(_stack([one.codes for one in coded]), _stack([one.scales for one in coded]))


def _stack(parts: Sequence[Tensor]) -> Tensor:
    """State of blocks of one shape as one tensor B × …: a view of it, or a copy where it belongs to others as well.

    State that lies apart, as it does when it was made or loaded, is brought together for good.
    """
    first = parts[0]
    if len(parts) == 1:
        return first if first.ndim > 2 else first[None]
    offset, size = first.storage_offset(), first.numel()
    if all(
        part.is_contiguous() and _shares_storage(part, first) and part.storage_offset() == offset + place * size
        for place, part in enumerate(parts)
    ):
        return first.as_strided((len(parts), *first.shape), (size, *first.stride()), offset)
    together = torch.stack(list(parts))
    owned: dict[int, int] = {}
    for part in parts:
        storage = part.untyped_storage()
        owned[storage._cdata] = owned.get(storage._cdata, storage.nbytes()) - part.nbytes
    if not any(owned.values()):
        for part, own in zip(parts, together, strict=True):
            part.data = own
    return together


def _shares_storage(part: Stored, whole: Stored) -> bool:
    if isinstance(part, EightBit) and isinstance(whole, EightBit):
        return _shares_storage(part.codes, whole.codes) and _shares_storage(part.scales, whole.scales)
    assert isinstance(part, Tensor)
    assert isinstance(whole, Tensor)
    return bool(part.untyped_storage()._cdata == whole.untyped_storage()._cdata)


def _start_of(batch: Sequence[Member], carried: Factors, settings: StepSettings) -> Tensor:
    """The rows to start from: at a refresh a sketch for each block, else what all blocks of a shape share."""
    block = batch[0].block
    like = carried.left.new_empty((block.rank, block.shape[1 - block.output_axis]))
    if settings.counter is not None:
        # Made now, for a graph cannot draw it.
        spare_sketch(settings.seed, *like.shape, like.dtype, like.device)
    if not settings.fresh:
        return sketch_to_start_from(settings.seed, settings.step, block.name, like, fresh=False)
    names = [block.name for member in batch for block in member.blocks]
    return torch.stack([gaussian_sketch(settings.seed, settings.step, name, like) for name in names])


@dataclass(frozen=True, kw_only=True)
class ScatteredMomentum(Momentum):
    """M of B blocks whose gradients lie where their parameters' do; `gradient` is that of the first."""

    pieces: Sequence[tuple[int | slice, Callable[[], Tensor]]]
    """Some of the blocks, and their gradients, outputs × inputs, in the type of the arithmetic."""

    def rows_times_transposed(self, rows: Tensor) -> Tensor:
        """X M^T (B × r × outputs), for r rows X of each."""
        found = times_transposed(times_transposed(rows, self.carried.right), self.carried.left)
        for part, gradient in self.pieces:
            lerp_product(found[part], rows[part], gradient().mT, 1.0 - self.beta1, precision=self.precision)
        return found

    def rows_times(self, rows: Tensor) -> Tensor:
        """X M (B × r × inputs), for r rows X of each."""
        found = times(times(rows, self.carried.left), self.carried.right)
        for part, gradient in self.pieces:
            lerp_product(found[part], rows[part], gradient(), 1.0 - self.beta1, precision=self.precision)
        return found


def _gradient_pieces(
    batch: Sequence[Member], compute: torch.dtype, *, largest: int, room: int
) -> tuple[list[tuple[int | slice, Callable[[], Tensor]]], int]:
    """The pieces of a `ScatteredMomentum`, and how many elements were copied to be kept: no more than there is room."""
    weight = batch[0].weight
    is_copied = batch[0].gradient.dtype is not compute
    if is_copied or weight.numel() // len(batch[0].blocks) < _COPIED_BELOW:
        cut = list(split_into_batches(batch, largest=largest))
    else:
        cut = [[member] for member in batch]
    copied = sum(member.weight.numel() for piece in cut for member in piece if is_copied or len(piece) > 1)
    keeps = copied <= room
    pieces: list[tuple[int | slice, Callable[[], Tensor]]] = []
    for part, piece in _number_batches(cut):
        gradient = partial(_join_gradients, piece, compute)
        pieces.append((part, cache(gradient) if keeps else gradient))
    return pieces, copied if keeps else 0


def _join_gradients(piece: Sequence[Member], compute: torch.dtype) -> Tensor:
    return join([_orient_gradient(member) for member in piece]).to(compute)


def _orient_gradient(member: Member) -> Tensor:
    return member.gradient.mT if member.block.output_axis == 1 else member.gradient
