"""Groups: like blocks that move together. They are made once, and hold until what moves changes.

A *slice* is one block of a parameter, or neighbours of a stack of experts. Slices that are alike make a *group*: B
blocks of one shape to which the same formulas with the same numbers apply. The state of a group is one tensor B × …, of
which each block's is a view under the parameter, as `state_dict` has it. Weights and gradients stay where they are.

Groups are bounded, so that what a step takes for a while does not grow with a model's depth:

    worked out by torch's operators    one block, or as many as a piece (`devices.py`) and the plan's largest block
                                       have elements, or 1 MiB
    moved by our kernel                any number; low-rank ones by those that have factors of a quarter of the
                                       largest block
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import methodcaller
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..plan.blocks import SCALE, Block, FirstMoment, SecondMoment
from ..plan.sharding import Portion, is_distributed, local_view, portion_of
from . import compiled
from .devices import chunk_elements
from .eight_bit import EightBit, Stored

ALWAYS_ELEMENTS = 2**18
"""1 MiB of float32: so much memory a step may take however small the model is; less would be many small groups."""
_BLOCKS_TO_FACTORS = 4
"""The largest block has so many times the elements of the factors that are worked out together, of which a step takes a
handful of copies."""


@dataclass(frozen=True, eq=False)
class ParamSlice:
    """A block of a parameter, or neighbours of a stack: B × m × n if there are several."""

    blocks: tuple[Block, ...]
    index: int
    """The index of the parameter among those that move."""
    weight: Tensor
    """W, or what is trained in its place."""
    parameter_state: dict[str, Tensor]
    """The parameter's state."""
    view: Callable[[Tensor], Tensor] | None = None
    """The slice of a tensor like the parameter; None if it is all of it."""
    portion: Portion | None = None
    """The part of the block in this process, if several share it."""

    def cut(self, start: int, stop: int) -> "ParamSlice":
        """Return some of the blocks; one as a matrix by itself."""
        if (start, stop) == (0, len(self.blocks)):
            return self
        chosen: Any = slice(start, stop) if stop > start + 1 else start
        whole = self.view

        def view(tensor: Tensor) -> Tensor:
            selected: Tensor = (tensor if whole is None else whole(tensor))[chosen]
            return selected

        return replace(self, blocks=self.blocks[start:stop], weight=self.weight[chosen], view=view)


def cut_parameter(
    blocks: Sequence[Block], position: int, parameter: Tensor, trained: Tensor, state: dict[str, Tensor]
) -> Iterator[ParamSlice]:
    """Yield the slices of a parameter: its blocks, like neighbours of a stack together."""
    if is_distributed(parameter):
        for block in blocks:
            portion = portion_of(block, parameter)
            local_of = partial(local_view, block, portion, parameter)
            yield ParamSlice((block,), position, local_of(trained), state, local_of, portion)
        return
    runs: list[list[Block]] = []
    latest: dict[object, list[Block]] = {}
    for block in blocks:
        kind = (likeness(block), block.part)
        run = latest.get(kind)
        if run is None or block.index is None or run[-1].index != block.index - 1:
            run = latest[kind] = []
            runs.append(run)
        run.append(block)
    for run in runs:
        first = run[0]
        view: Callable[[Tensor], Tensor] | None = None
        if len(run) > 1:
            view = partial(_view_stack, first, len(run))
        elif first.index is not None:
            view = first.view
        elif first.part is not None:
            view = methodcaller("narrow", first.part.axis, first.part.start, first.part.length)
        yield ParamSlice(tuple(run), position, trained if view is None else view(trained), state, view)


def _view_stack(first: Block, count: int, tensor: Tensor) -> Tensor:
    assert first.index is not None
    stack, part = tensor.narrow(0, first.index, count), first.part
    return stack if part is None else stack.narrow(part.axis + 1, part.start, part.length)


def likeness(block: Block) -> tuple[object, ...]:
    """Return the properties that blocks of a group share."""
    moments = (block.first_moment, block.second_moment, block.state_dtype, block.decays)
    return (*moments, block.shape, block.rank, block.output_axis, block.head_size)


@dataclass(eq=False)
class Group:
    """Like blocks that move together."""

    slices: Sequence[ParamSlice]
    state: dict[str, Sequence[Stored]]
    """The state by the names of `Block.state_shapes`: one tensor B × …, without B for a single block; or one for each
    block if blocks that do not move now have their state in the same memory."""
    largest: int
    """Elements of the plan's largest block."""
    compiles: bool
    """Whether compiled code may move them."""

    def __post_init__(self) -> None:
        self.block = self.slices[0].blocks[0]
        """Any of them: they are alike."""
        self.weights = [piece.weight for piece in self.slices]
        self.blocks = [block for piece in self.slices for block in piece.blocks]
        self.compute = torch.promote_types(self.weights[0].dtype, torch.float32)
        """Type of the arithmetic."""
        self.portion = self.slices[0].portion
        """The part of any of them that is in this process, if several share it."""

    def gather(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return G of each slice, from the gradients of the parameters that move."""
        return [
            gradients[piece.index] if piece.view is None else piece.view(gradients[piece.index])
            for piece in self.slices
        ]

    @cached_property
    def singles(self) -> "Group":
        """The same blocks, each a slice by itself with state of its own."""
        slices = [piece.cut(index, index + 1) for piece in self.slices for index in range(len(piece.blocks))]
        count = len(slices)
        state = {
            name: [stored[0][index] for index in range(count)] if len(stored) == 1 < count else stored
            for name, stored in self.state.items()
        }
        return Group(slices, state, self.largest, self.compiles)

    def limit(self) -> int:
        """Return the number of elements of such blocks that may be worked on at a time."""
        return limit_of(self.weights[0], largest=self.largest)

    @cached_property
    def kernels(self) -> ModuleType | None:
        """`kernels.py`, where its kernel moves such blocks."""
        block = self.block
        if not self.compiles or len(block.shape) != 2:
            return None
        kernels = compiled.kernels_for(self.weights[0].device)
        # Factors are read for it, other state it reads itself.
        moved = [block.state_dtypes[name] for name in ("exp_avg", "exp_avg_sq") if name in block.state_dtypes]
        suits = kernels is not None and all(map(kernels.is_supported, (self.weights[0].dtype, *moved)))
        return kernels if suits else None

    @cached_property
    def _suits_compiled(self) -> bool:
        element = self.block.second_moment is SecondMoment.ELEMENT
        touched = (*self.weights, *(self.singles.state["exp_avg_sq"] if element else ()))
        return self.compiles and compiled.is_worth_compiling(self.block.shape, *touched)

    def is_compiled(self, gradient: Tensor) -> bool:
        """Return whether compiled code moves them, with a gradient like this."""
        return self._suits_compiled and compiled.is_worth_compiling(self.block.shape, gradient)


def limit_of(weight: Tensor, *, largest: int) -> int:
    """Return the most elements of blocks like this one that are worked on at a time, if the largest has `largest`.

    Half as many of weights that are narrower than the arithmetic, which needs copies of W and G as well.
    """
    limit = min(max(largest, ALWAYS_ELEMENTS), chunk_elements(weight.device))
    return max(1, limit // 2 if weight.dtype.itemsize < torch.float32.itemsize else limit)


def make_units(slices: Sequence[ParamSlice], *, largest: int, compiles: bool) -> list[list[Group]]:
    """Return groups of slices of one type, on one device; the groups of one unit are worked out together.

    Args:
        slices: In any order.
        largest: Elements of the plan's largest block.
        compiles: Whether compiled code may move them.
    """
    alike: dict[object, list[ParamSlice]] = {}
    for part in slices:
        alike.setdefault((likeness(part.blocks[0]), part.weight.shape[-len(part.blocks[0].shape) :]), []).append(part)
    units: list[list[Group]] = []
    room = 0.0
    """The share of what may be worked on at a time that the last unit leaves."""
    for members in sorted(alike.values(), key=_is_not_low_rank):  # factors of several shapes in one call
        first, block = members[0], members[0].blocks[0]
        needed, limit = _BLOCKS_TO_FACTORS * block.rank * sum(block.shape), max(largest, ALWAYS_ELEMENTS)
        if Group([first], {}, largest, compiles).kernels is None:  # gradients are copied
            needed = max(needed, first.weight.numel() // len(first.blocks))
            limit = limit_of(first.weight, largest=largest)
        elif _is_not_low_rank(members):
            singles = [piece.cut(index, index + 1) for piece in members for index in range(len(piece.blocks))]
            units.append([hold(singles, largest, compiles, together=False)])
            room = 0.0
            continue
        share = max(1, needed) / limit
        singles = [member for member in members if len(member.blocks) == 1]
        # A stack is a group by itself, because it is a batch where it lies.
        for like in [*([member] for member in members if len(member.blocks) > 1), singles]:
            count, start = sum(len(member.blocks) for member in like), 0
            while start < count:
                if room < share:
                    units.append([])
                    room = 1.0
                stop = min(count, start + max(1, int(room / share)))
                together = like[start:stop] if like is singles else [like[0].cut(start, stop)]
                units[-1].append(hold(together, largest, compiles))
                room -= (stop - start) * share
                start = stop
    return units


def _is_not_low_rank(members: Sequence[ParamSlice]) -> bool:
    return members[0].blocks[0].first_moment is not FirstMoment.LOW_RANK


def hold(slices: Sequence[ParamSlice], largest: int, compiles: bool, *, together: bool = True) -> Group:
    """Return a group of these slices, with its state, which is zero where there is none yet.

    Args:
        slices: Alike; of any shapes where their state is not held together.
        largest: As for `Group`.
        compiles: As for `Group`.
        together: Whether state is one tensor, or one for each block.
    """
    held: dict[str, list[Tensor]] = {name: [] for name in slices[0].blocks[0].state_shapes}
    for part in [slices] if together else [[piece] for piece in slices]:
        block = part[0].blocks[0]
        for name, tensors in held.items():
            owners = [(piece.parameter_state, member.key(name)) for piece in part for member in piece.blocks]
            like = torch.empty(0, dtype=block.state_dtypes[name], device=part[0].weight.device)
            tensors += hold_together(owners, state_shape(block, name, part[0].portion), like)
    return Group(slices, _pair_with_scales(held), largest, compiles)


def state_shape(block: Block, name: str, portion: Portion | None) -> tuple[int, ...]:
    """Return the shape of what is kept here under that name."""
    whole = block.state_shapes[name]
    if portion is None:
        return whole
    followed = followed_axes(block, name)
    return tuple(
        size if axis is None else len(portion.ranges[axis]) for size, axis in zip(whole, followed, strict=True)
    )


def followed_axes(block: Block, name: str) -> tuple[int | None, ...]:
    """Return the axis of the block that each dimension of that state follows, where a part of the block needs a part of
    it."""
    if name.endswith(SCALE):
        return (followed_axes(block, name.removesuffix(SCALE))[0], None)
    if name == "momentum_left":
        return (0, None)
    if name == "momentum_right":
        return (None, 1)
    if name == "exp_avg_sq" and block.second_moment is not SecondMoment.ELEMENT:
        return (block.output_axis if block.head_size == 1 else None,)
    return tuple(range(len(block.shape)))


def hold_together(
    owners: Sequence[tuple[dict[str, Tensor], str]], shape: tuple[int, ...], like: Tensor
) -> list[Tensor]:
    """Move the state of these names into one tensor B × …, of which each is a view; without B for one owner.

    Zero where nothing is kept. What lies apart, as after loading, is brought together, but where it has memory in
    common with others: that is left as it is, in a list.
    """
    if not any(key in state for state, key in owners):
        whole = like.new_zeros((len(owners), *shape) if len(owners) > 1 else shape)
        _share(owners, whole)
        return [whole]
    for state, key in owners:
        state[key] = state[key].contiguous() if key in state else like.new_zeros(shape)
    parts = [state[key] for state, key in owners]
    first = parts[0]
    if len(parts) == 1:
        return parts
    offset, size, storage = first.storage_offset(), first.numel(), first.untyped_storage()._cdata
    if all(
        part.untyped_storage()._cdata == storage and part.storage_offset() == offset + index * size
        for index, part in enumerate(parts)
    ):
        return [first.as_strided((len(parts), *first.shape), (size, *first.stride()), offset)]
    owned: dict[int, int] = {}
    for part in parts:
        memory = part.untyped_storage()
        owned[memory._cdata] = owned.get(memory._cdata, memory.nbytes()) - part.nbytes
    if any(owned.values()):
        return parts
    whole = torch.stack(parts)
    _share(owners, whole)
    return [whole]


def _share(owners: Sequence[tuple[dict[str, Tensor], str]], whole: Tensor) -> None:
    for (state, key), part in zip(owners, whole.unbind() if len(owners) > 1 else [whole], strict=True):
        state[key] = part


def _pair_with_scales(held: dict[str, list[Tensor]]) -> dict[str, Sequence[Stored]]:
    """State by name, in which codes and their scales have become one."""
    paired: dict[str, Sequence[Stored]] = {}
    for name, tensors in held.items():
        if (scales := held.get(f"{name}{SCALE}")) is not None:
            if len(scales) != len(tensors):  # one of them is apart
                tensors, scales = ([*parts[0]] if len(parts) == 1 else parts for parts in (tensors, scales))
            paired[name] = [EightBit(codes, scale) for codes, scale in zip(tensors, scales, strict=True)]
        elif not name.endswith(SCALE):
            paired[name] = tensors
    return paired
