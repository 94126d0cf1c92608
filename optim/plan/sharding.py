"""Sharded parameters: which of them an optimizer can train, and what of a block this process holds.

    FSDP1                 every parameter is a part of one vector, of its own (`use_orig_params=True`) or not
    DeepSpeed ZeRO-3      a parameter is empty, its part elsewhere
    FSDP2, tensor parallelism     a parameter is a `DTensor`: its shape is the whole's, its numbers are a part's

The first two hide shapes, by which this project also tells matrices, which decay, from vectors: no optimizer of the
catalog can do without. A `DTensor` is right for every optimizer that moves each weight by itself, and for AdaPM, whose
step knows which part of each block this process holds (`Portion`).
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from ..errors import ShardedParametersError
from .blocks import EIGHT_BIT, Block
from .modules import plain_name

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor


def refuse_sharded(
    named: Iterable[tuple[str, Tensor]], optimizer: str, *, elementwise: bool = False, by_parts: bool = False
) -> None:
    """Raise `ShardedParametersError` if that optimizer cannot train one of these parameters.

    Args:
        named: Names and parameters.
        optimizer: What it is called.
        elementwise: Whether each weight moves by its own gradient alone: then a `DTensor` is as good as a tensor.
        by_parts: Whether it works on the part of a matrix that this process holds, as AdaPM does: then a `DTensor` is
            as good as a tensor where that part is one range of each dimension.
    """
    named = list(named)
    trainable = {_SPLIT} if elementwise or by_parts else set()
    offenders = [(name, value, how) for name, value in named if (how := _how(value)) and how not in trainable]
    if not offenders:
        if by_parts:
            _refuse_scattered(named, optimizer)
        return
    name, value, how = offenders[0]
    suffix = f" and {len(offenders) - 1} more" if len(offenders) > 1 else ""
    raise ShardedParametersError(
        f"{optimizer} goes by the shapes of whole parameters, and {how} {plain_name(name)} {tuple(value.shape)}{suffix}"
        f"; keep them whole by DistributedDataParallel, or take fully_shard (FSDP2) and an optimizer that moves each "
        f"weight by itself, such as adamw, or AdaPM"
    )


def is_distributed(value: object) -> "TypeGuard[DTensor]":
    """Return whether it is a `DTensor`."""
    distributed = sys.modules.get(_DTENSOR_MODULE)  # nobody has made one where it was never imported
    return distributed is not None and isinstance(value, distributed.DTensor)


_DTENSOR_MODULE = "torch.distributed.tensor" if torch.__version__ >= "2.5" else "torch.distributed._tensor"
_SHARDS_SINCE = "2.6"
"""The first torch whose public `fully_shard` and strided shards are those that AdaPM works on the parts of."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Portion:
    """The part of a block in this process: a range of each axis."""

    ranges: tuple[range, ...]
    """Along each axis of the block."""
    groups: "tuple[tuple[ProcessGroup, ...], ...]"
    """The processes that an axis is divided among; none if all of it is here."""
    axes: tuple[int | None, ...]
    """The axis of the block that each dimension of the mesh divides, if it does."""
    is_even: bool
    """Whether the block is divided as a `DTensor` of its own would be: not so where its edges lie inside shards."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is here."""
        return tuple(len(span) for span in self.ranges)


def portion_of(block: Block, parameter: "DTensor") -> Portion:
    """Return the part of the block in this process; the parameter is the block's."""
    ranges = [*local_ranges(parameter)]
    stacked = block.index is not None
    axes: list[int | None] = []
    for size, placement in zip(parameter.device_mesh.shape, parameter.placements, strict=True):
        dimension = getattr(placement, "dim", None)
        # A stack that is divided by its first dimension: a matrix's rows are all here, or none are.
        axes.append(None if dimension is None or size == 1 else max(0, dimension - 1) if stacked else dimension)
    is_even = True
    if block.index is not None:
        own_range, *ranges = ranges
        is_even = not any(
            size > 1 and getattr(placement, "dim", None) == 0
            for size, placement in zip(parameter.device_mesh.shape, parameter.placements, strict=True)
        )
        if block.index not in own_range:
            ranges[0] = range(0)
    if block.part is not None:
        axis, start, length = block.part.axis, block.part.start, block.part.length
        low, high = (min(max(edge - start, 0), length) for edge in (ranges[axis].start, ranges[axis].stop))
        ranges[axis] = range(low, high)
        is_even = is_even and axis not in axes
    groups = tuple(
        tuple(parameter.device_mesh.get_group(dimension) for dimension, cut_axis in enumerate(axes) if cut_axis == axis)
        for axis in range(len(ranges))
    )
    return Portion(ranges=tuple(ranges), groups=groups, axes=tuple(axes), is_even=is_even)


def refuse_divided_blocks(blocks: Iterable[Block], parameter: "DTensor", optimizer: str) -> None:
    """Raise `ShardedParametersError` for blocks whose state cannot be divided as they are: those that end inside a
    dimension that is divided twice, which a `DTensor` has no place for, and rows of 8-bit state, which share scales."""
    for block in blocks:
        portion = portion_of(block, parameter)
        if block.state_dtype is EIGHT_BIT and any(portion.groups[1:]):
            raise ShardedParametersError(
                f"{optimizer} keeps scales of the rows of 8-bit state (state_dtype=torch.int8), and {block.name} is "
                f"divided inside its rows ({', '.join(str(kind) for kind in parameter.placements)}); take "
                f"state_dtype=torch.bfloat16, or divide it by its first dimension (FSDP2, HSDP, ColwiseParallel)"
            )
        if not portion.is_even and any(len(groups) > 1 for groups in portion.groups):
            raise ShardedParametersError(
                f"{optimizer} cannot save the state of {block.name}, a part of {tuple(parameter.shape)} that is "
                f"{', '.join(str(kind) for kind in parameter.placements)}; shard fused matrices and stacks of experts "
                f"over one dimension of the mesh (FSDP2, HSDP), or by different dimensions"
            )


def local_view(block: Block, portion: Portion, parameter: "DTensor", tensor: Tensor) -> Tensor:
    """Return the part of the block that is here, of the parameter or its gradient, without a copy."""
    assert is_distributed(tensor)  # as the gradient of a `DTensor` is
    if tensor.placements != parameter.placements:
        tensor = tensor.redistribute(placements=parameter.placements)
    local = tensor.to_local()
    first = [*local_ranges(parameter)]
    if block.index is not None:
        own_range, *first = first
        local = local[block.index - own_range.start] if block.index in own_range else local.new_empty(portion.shape)
    for axis, (span, own_range) in enumerate(zip(portion.ranges, first, strict=True)):
        start = span.start + (block.part.start if block.part is not None and block.part.axis == axis else 0)
        if len(span) != local.shape[axis]:
            local = local.narrow(axis, start - own_range.start if span else 0, len(span))
    return local


def local_ranges(parameter: "DTensor") -> tuple[range, ...]:
    """Return the ranges of the parameter in this process, along each dimension."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # a second to import

    lengths, starts = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(range(start, start + length) for start, length in zip(starts, lengths, strict=True))


def _refuse_scattered(named: Iterable[tuple[str, Tensor]], optimizer: str) -> None:
    """Refuse `DTensor`s of which a process does not hold one range of each dimension."""
    for name, value in named:
        if not is_distributed(value):
            continue
        if torch.__version__ < _SHARDS_SINCE:
            raise ShardedParametersError(
                f"{optimizer} trains parameters that FSDP2 or tensor parallelism has split with torch 2.6 or newer, "
                f"and this is {torch.__version__}; install a newer one, or keep them whole by DistributedDataParallel"
            )
        parts: dict[int | None, list[int]] = {}
        for size, placement in zip(value.device_mesh.shape, value.placements, strict=True):
            if size > 1 and not placement.is_replicate():
                parts.setdefault(getattr(placement, "dim", None), []).append(size)
        # FSDP2 divides again what tensor parallelism has divided (`_StridedShard`): into ranges only where it is even.
        if None in parts or any(
            len(sizes) > 1 and value.shape[dimension] % prod(sizes) != 0
            for dimension, sizes in parts.items()
            if dimension is not None
        ):
            raise ShardedParametersError(
                f"{optimizer} trains parameters of which a process holds a range of each dimension, and "
                f"{plain_name(name)} {tuple(value.shape)} is {', '.join(str(kind) for kind in value.placements)} over "
                f"{tuple(value.device_mesh.shape)} processes; make the dimension that is divided twice a multiple of "
                f"both, shard over one dimension of the mesh (FSDP2, HSDP), or take an optimizer that moves each "
                f"weight by itself, such as adamw"
            )


_FLAT = "FSDP has flattened"
_PARTED = "DeepSpeed ZeRO-3 has taken apart"
_SPLIT = "FSDP2 or tensor parallelism has split"


def _how(parameter: Tensor) -> str | None:
    """Return the sharding of the parameter; None if it is whole."""
    if getattr(parameter, "_fsdp_flattened", False):  # torch.distributed.fsdp's own mark
        return _FLAT
    if hasattr(parameter, "ds_id"):  # as DeepSpeed itself tells its own
        return _PARTED
    return _SPLIT if is_distributed(parameter) else None
