"""Groups: like blocks that move together. They are made once, and hold until what moves changes.

Blocks that are alike make a *group*: B blocks of one shape to which the same formulas with the same numbers apply. The
state of a group is one tensor B × …, of which each block's is a view under the parameter, as `state_dict` has it.
Weights and gradients stay where they are.

Groups are bounded, so that what a step takes for a while does not grow with a model's depth:

    worked out by torch's operators    one block, or as many as a piece (`devices.py`) and the plan's largest block
                                       have elements, or 1 MiB
    moved by C                         one block
    moved by our kernel                any number; low-rank ones by those that have factors of a quarter of the
                                       largest block
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from ..plan.blocks import SCALE, Block, FirstMoment, SecondMoment
from ..plan.sharding import Portion, is_distributed, local_view, portion_of
from . import compiled, devices
from .devices import chunk_elements
from .eight_bit import EightBit, Stored
from .sharded import processes_sharing_moments

ALWAYS_ELEMENTS = 2**18
"""1 MiB of float32: so much memory a step may take however small the model is; less would be many small groups."""
_BLOCKS_TO_FACTORS = 4
"""The largest block has so many times the elements of the factors that are worked out together, of which a step takes a
handful of copies."""


@dataclass(frozen=True, eq=False)
class ParamSlice:
    """A block of a parameter, or the part of it that is in this process."""

    block: Block
    index: int
    """The index of the parameter among those that move."""
    weight: Tensor
    """W, or what is trained in its place."""
    state: dict[str, Tensor]
    """The parameter's state."""
    view: Callable[[Tensor], Tensor] | None = None
    """The slice of a tensor like the parameter; None if it is all of it."""
    portion: Portion | None = None
    """The part of the block in this process, if several share it."""


def cut_parameter(
    blocks: Sequence[Block], index: int, parameter: Tensor, trained: Tensor, state: dict[str, Tensor]
) -> Iterator[ParamSlice]:
    """Yield the slices of a parameter, one for each of its blocks."""
    for block in blocks:
        view: Callable[[Tensor], Tensor] | None = None
        portion = None
        if is_distributed(parameter):
            portion = portion_of(block, parameter)
            view = partial(local_view, block, portion, parameter)
        elif block.index is not None or block.part is not None:
            view = block.view
        yield ParamSlice(block, index, trained if view is None else view(trained), state, view, portion)


def likeness(block: Block) -> tuple[object, ...]:
    """Return the properties that blocks of a group share."""
    moments = (block.first_moment, block.second_moment, block.state_dtype, block.decays)
    return (*moments, block.shape, block.rank, block.output_axis, block.head_size)


@dataclass(eq=False)
class Group:
    """Like blocks that move together."""

    slices: Sequence[ParamSlice]
    state: Mapping[str, Sequence[Stored]]
    """The state by the names of `Block.state_shapes`: one tensor B × …, without B for a single block; or one for each
    block if blocks that do not move now have their state in the same memory."""
    limit: int = 0
    """The most elements of a block that are worked on at a time."""
    kernels: ModuleType | None = None
    """`kernels.py`, where its kernel moves the blocks."""
    is_compiled: bool = False
    """Whether C moves the block."""

    is_stack: bool = False
    """Whether the blocks are neighbours of one stack, which is the batch where it lies."""

    def __post_init__(self) -> None:
        first = self.slices[0]
        self.block, self.portion = first.block, first.portion
        """Those of any of them: they are alike."""
        self.sharers = processes_sharing_moments(first.block, first.portion)
        """The processes that have parts of what shares one second moment."""
        self.weights = [part.weight for part in self.slices]
        self._views = [(part.index, part.view) for part in self.slices]
        if self.is_stack:
            weight, second, count = first.weight, self.slices[1].weight, len(self.slices)
            steps = (second.storage_offset() - weight.storage_offset(), *weight.stride())
            self.weights = [weight.as_strided((count, *weight.shape), steps, weight.storage_offset())]
            self._views = [(first.index, partial(_view_stack, first.block, count))]
        self.compute = torch.promote_types(first.weight.dtype, torch.float32)
        """Type of the arithmetic."""

    def gather(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return G of each block, or of all blocks of a stack, from the gradients of the parameters that move."""
        return [gradients[index] if view is None else view(gradients[index]) for index, view in self._views]

    def plain_state(self, name: str) -> list[Tensor]:
        """Return the state of that name of each block, which is not in 8 bits; nothing where there is none."""
        tensors = [stored for stored in self.state.get(name, ()) if isinstance(stored, Tensor)]
        return [*tensors[0].unbind()] if 0 < len(tensors) < len(self.slices) else tensors


def _view_stack(first: Block, count: int, tensor: Tensor) -> Tensor:
    assert first.index is not None
    stack, part = tensor.narrow(0, first.index, count), first.part
    return stack if part is None else stack.narrow(part.axis + 1, part.start, part.length)


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
    alike: dict[tuple[object, ...], list[ParamSlice]] = {}
    for part in slices:
        stack = None if part.block.index is None or part.portion is not None else (part.index, part.block.part)
        alike.setdefault((likeness(part.block), part.weight.shape, stack), []).append(part)
    units: list[list[Group]] = []
    room = 0.0
    """The share of what may be worked on at a time that the last unit leaves."""
    # Factors of several shapes in one call.
    for kind, members in sorted(alike.items(), key=lambda item: _is_not_low_rank(item[1])):
        block, weight = members[0].block, members[0].weight
        kernels = _kernels_for(block, weight) if compiles else None
        is_compiled = compiles and kernels is None and _suits_c(block, weight)
        limit = limit_of(weight, largest=largest)
        needed, allowed = _BLOCKS_TO_FACTORS * block.rank * sum(block.shape), max(largest, ALWAYS_ELEMENTS)
        if kernels is None:  # gradients are copied
            needed, allowed = max(needed, weight.numel()), limit
        if is_compiled:
            limit = min(max(largest, ALWAYS_ELEMENTS), devices.COMPILED_CHUNK_ELEMENTS)
        share = max(1, needed) / allowed
        # One tensor of what a kernel moves where it lies would be a second copy of it after loading.
        is_apart = kernels is not None and _is_not_low_rank(members)
        start = 0
        while start < len(members):
            if room < share:
                units.append([])
                room = 1.0
            together = members[start : start + (1 if is_compiled else max(1, int(room / share)))]
            first, last = (part.block.index or 0 for part in (together[0], together[-1]))
            is_stack = kernels is None and kind[-1] is not None and last - first == len(together) - 1 > 0
            state = hold_state(together, apart=is_apart)
            units[-1].append(Group(together, state, limit, kernels, is_compiled, is_stack))
            room -= len(together) * share
            start += len(together)
    return units


def _is_not_low_rank(members: Sequence[ParamSlice]) -> bool:
    return members[0].block.first_moment is not FirstMoment.LOW_RANK


def _kernels_for(block: Block, weight: Tensor) -> ModuleType | None:
    """Return `kernels.py` if its kernel moves such blocks: factors are made for it, other state it reads itself."""
    kernels = compiled.kernels_for(weight.device) if len(block.shape) == 2 else None
    moved = [block.state_dtypes[name] for name in ("exp_avg", "exp_avg_sq") if name in block.state_dtypes]
    suits = kernels is not None and all(map(kernels.is_supported, (weight.dtype, *moved)))
    return kernels if suits else None


def _suits_c(block: Block, weight: Tensor) -> bool:
    suits = block.second_moment is not SecondMoment.ELEMENT or block.state_dtype is torch.float32
    return suits and compiled.is_worth_compiling(block.shape, weight)


def hold_state(slices: Sequence[ParamSlice], *, apart: bool = False) -> Mapping[str, Sequence[Stored]]:
    """Return the state of a group of these slices by name, which is zero where there is none yet.

    Args:
        slices: Alike; of any shapes if `apart`.
        apart: Whether every block has tensors of its own, and not all one of each name.
    """
    held: dict[str, list[Tensor]] = {name: [] for name in slices[0].block.state_shapes}
    for members in [[part] for part in slices] if apart else [slices]:
        block, portion = members[0].block, members[0].portion
        for name, tensors in held.items():
            owners = [(part.state, part.block.key(name)) for part in members]
            like = torch.empty(0, dtype=block.state_dtypes[name], device=members[0].weight.device)
            tensors += hold_together(owners, state_shape(block, name, portion), like)
    return _pair_with_scales(held)


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


def _pair_with_scales(held: Mapping[str, list[Tensor]]) -> Mapping[str, Sequence[Stored]]:
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
