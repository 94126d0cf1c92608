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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..plan.blocks import SCALE, Block, FirstMoment, SecondMoment
from ..plan.sharding import Portion
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


@dataclass(eq=False)
class Group:
    """Like blocks that move together."""

    slices: Sequence[ParamSlice]
    state: Mapping[str, Stored]
    """The state that is one tensor, by the names of `Block.state_shapes`: B × …, without B for a single block."""
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
        self.averages, self.moments = (
            [part.state[part.block.key(name)] for part in self.slices if name in part.block.state_shapes]
            for name in ("exp_avg", "exp_avg_sq")
        )
        """m and v of each block, where they are kept."""

    def gather(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return G of each block, or of all blocks of a stack, from the gradients of the parameters that move."""
        return [gradients[index] if view is None else view(gradients[index]) for index, view in self._views]


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
    alike: dict[tuple[Any, ...], list[ParamSlice]] = {}
    for part in slices:
        block = part.block
        moments = (block.first_moment, block.second_moment, block.state_dtype, block.decays)
        sizes = (block.shape, part.weight.shape, block.rank, block.output_axis, block.head_size)
        stack = None if block.index is None or part.portion is not None else (part.index, block.part)
        alike.setdefault((moments, sizes, stack), []).append(part)
    units: list[list[Group]] = []
    room = 0.0
    """The share of what may be worked on at a time that the last unit leaves."""
    # Factors of several shapes in one call.
    for kind, members in sorted(alike.items(), key=lambda item: item[0][0][0] is not FirstMoment.LOW_RANK):
        block, weight = members[0].block, members[0].weight
        kernels = _kernels_for(block, weight) if compiles else None
        is_compiled = (
            compiles
            and kernels is None
            and (block.second_moment is not SecondMoment.ELEMENT or block.state_dtype is torch.float32)
            and compiled.is_worth_compiling(block.shape, weight)
        )
        limit = limit_of(weight, largest=largest)
        needed, allowed = _BLOCKS_TO_FACTORS * block.rank * sum(block.shape), max(largest, ALWAYS_ELEMENTS)
        if kernels is None:  # gradients are copied
            needed, allowed = max(needed, weight.numel()), limit
        if is_compiled:
            limit = min(max(largest, ALWAYS_ELEMENTS), devices.COMPILED_CHUNK_ELEMENTS)
        share = max(1, needed) / allowed
        smallest = min(block.state_shapes, key=lambda name: prod(block.state_shapes[name]))  # one tensor, if any is
        for run in runs([(part.state, part.block.key(smallest)) for part in members]):
            together = members[run.start : run.stop]
            while together:
                if room < share:
                    units.append([])
                    room = 1.0
                count = 1 if is_compiled else max(1, int(room / share))
                chosen, together = together[:count], together[count:]
                first, last = (part.block.index or 0 for part in (chosen[0], chosen[-1]))
                is_stack = kernels is None and kind[-1] is not None and last - first == len(chosen) - 1 > 0
                state = hold_state(chosen, by_address=kernels is not None)
                units[-1].append(Group(chosen, state, limit, kernels, is_compiled, is_stack))
                room -= len(chosen) * share
    return units


def _kernels_for(block: Block, weight: Tensor) -> ModuleType | None:
    """Return `kernels.py` if its kernel moves such blocks: factors are made for it, other state it reads itself."""
    kernels = compiled.kernels_for(weight.device) if len(block.shape) == 2 else None
    moved = [block.state_dtypes[name] for name in ("exp_avg", "exp_avg_sq") if name in block.state_dtypes]
    suits = kernels is not None and {weight.dtype, *moved} <= kernels.DTYPES.keys()
    return kernels if suits else None


def hold_state(slices: Sequence[ParamSlice], *, by_address: bool = False) -> Mapping[str, Stored]:
    """Allocate the state of like slices, zero where there is none yet; return what is one tensor of all, by name.

    Args:
        slices: Alike; of any shapes, where both moments are as large as the block and found by address.
        by_address: Whether moments as large as the block are moved where they lie: joined they would be copied after
            loading.
    """
    block, joined = slices[0].block, dict[str, Tensor]()
    for name, dtype in block.state_dtypes.items():
        like = torch.empty(0, dtype=dtype, device=slices[0].weight.device)
        is_apart = by_address and name in ("exp_avg", "exp_avg_sq") and block.state_shapes[name] == block.shape
        for owners in ([part] for part in slices) if is_apart else [slices]:
            shape = tuple(map(len, own_ranges(owners[0].block, name, owners[0].portion)))
            joined[name] = hold_together([(part.state, part.block.key(name)) for part in owners], shape, like)
        if is_apart:
            del joined[name]
    return {
        name: EightBit(tensor, joined[f"{name}{SCALE}"]) if f"{name}{SCALE}" in joined else tensor
        for name, tensor in joined.items()
    }


def own_ranges(block: Block, name: str, portion: Portion | None) -> tuple[range, ...]:
    """Return the part that this process keeps of that state: a range of each dimension."""
    whole = block.state_shapes[name]
    if portion is None:
        return tuple(map(range, whole))
    followed = zip(whole, followed_axes(block, name), strict=True)
    return tuple(range(size) if axis is None else portion.ranges[axis] for size, axis in followed)


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


def runs(owners: Sequence[tuple[dict[str, Tensor], str]]) -> list[range]:
    """Return the owners whose tensors can be one while those of others stay where they are: all, if no other has a part
    of the same memory, or else those that lie side by side."""
    parts = [state.get(key) for state, key in owners]
    owned: dict[int, int] = {}
    for part in parts:
        if part is not None:
            memory = part.untyped_storage()
            owned[memory._cdata] = owned.get(memory._cdata, memory.nbytes()) - part.nbytes
    breaks = [
        index for index, pair in enumerate(pairwise(parts), 1) if any(owned.values()) and not _are_side_by_side(*pair)
    ]
    return [range(*edges) for edges in pairwise([0, *breaks, len(parts)])]


def hold_together(owners: Sequence[tuple[dict[str, Tensor], str]], shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return the tensors of these owners as one, B × …, of which each then is a view; without B for one owner. Zero
    where there is none. What lies apart, as after loading, is brought together."""
    if not any(key in state for state, key in owners):
        whole = like.new_zeros((len(owners), *shape) if len(owners) > 1 else shape)
    else:
        parts = [state[key].contiguous() if key in state else like.new_zeros(shape) for state, key in owners]
        first = parts[0]
        if len(parts) == 1:
            whole = first
        elif all(_are_side_by_side(*pair) for pair in pairwise(parts)):
            steps = (first.numel(), *first.stride())
            return first.as_strided((len(parts), *first.shape), steps, first.storage_offset())
        else:
            whole = torch.stack(parts)
    for (state, key), part in zip(owners, whole.unbind() if len(owners) > 1 else [whole], strict=True):
        state[key] = part
    return whole


def _are_side_by_side(part: Tensor | None, following: Tensor | None) -> bool:
    if part is None or following is None:
        return part is following
    return (
        part.untyped_storage()._cdata == following.untyped_storage()._cdata
        and part.storage_offset() + part.numel() == following.storage_offset()
    )
