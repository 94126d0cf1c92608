"""The state of parameters that several processes share: which part of it is here, and how it is saved.

The optimizer keeps plain tensors, the parts of each process. A state dict has every tensor at its whole shape, under
the name that it has in one process: as a `DTensor` where processes hold parts of it, and as a plain tensor where all
have the same. `torch.distributed.checkpoint` saves and loads both, for any number of processes.

A `DTensor` divides its rows evenly. Blocks whose edges lie inside shards (the query rows of a fused matrix, one expert
of a stack) are divided otherwise, and sent to where a `DTensor` has them when they are saved, and back when they are
loaded: every process must take part in `state_dict` and `load_state_dict`.
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from ..plan.blocks import Block
from ..plan.sharding import Portion, is_distributed, local_ranges, portion_of
from .groups import followed_axes


def as_whole(local: Tensor, block: Block, state_name: str, parameter: DTensor) -> Tensor:
    """Return the saved form of this process's part: a `DTensor` of the whole shape, or the same tensor if it is
    whole."""
    portion = portion_of(block, parameter)
    placements = _placements(block, state_name, portion, parameter)
    if all(placement.is_replicate() for placement in placements):
        return local
    if not portion.is_even:
        local = _redistribute(local, block, state_name, parameter, to_even=True)
    shape = block.state_shapes[state_name]
    stride = tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
    return DTensor.from_local(
        local, parameter.device_mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


def part_of(saved: Tensor, block: Block, state_name: str, parameter: Tensor) -> Tensor:
    """Return the local part of a saved tensor, whatever number of processes saved it."""
    if not is_distributed(parameter):
        return saved.full_tensor() if is_distributed(saved) else saved
    portion = portion_of(block, parameter)
    placements = _placements(block, state_name, portion, parameter)
    if is_distributed(saved):
        if saved.device_mesh == parameter.device_mesh and saved.placements == placements:
            local = saved.to_local()
            return local if portion.is_even else _redistribute(local, block, state_name, parameter, to_even=False)
        saved = saved.full_tensor()
    return _cut_out(
        saved, [None if axis is None else portion.ranges[axis] for axis in followed_axes(block, state_name)]
    )


def divide_like(saved: Tensor, parameter: Tensor) -> Tensor:
    """Return a tensor of a parameter's shape, saved by this many processes or others, divided as the parameter is."""
    if not is_distributed(parameter):
        return saved.full_tensor() if is_distributed(saved) else saved
    if is_distributed(saved):
        if saved.device_mesh == parameter.device_mesh and saved.placements == parameter.placements:
            return saved
        saved = saved.full_tensor()
    return DTensor.from_local(
        _cut_out(saved.to(parameter.device), local_ranges(parameter)),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _cut_out(whole: Tensor, ranges: Sequence[range | None]) -> Tensor:
    """Return a copy of that range of each dimension; None stands for all of it."""
    for dimension, own_range in enumerate(ranges):
        if own_range is not None:
            whole = whole.narrow(dimension, own_range.start if own_range else 0, len(own_range))
    return whole.clone()


def _placements(block: Block, state_name: str, portion: Portion, parameter: DTensor) -> tuple[Placement, ...]:
    followed = followed_axes(block, state_name)
    state_placements: list[Placement] = []
    for axis, placement in zip(portion.axes, parameter.placements, strict=True):
        if axis is None or axis not in followed:
            state_placements.append(Replicate())
        elif isinstance(placement, _StridedShard):
            state_placements.append(_StridedShard(followed.index(axis), split_factor=placement.split_factor))
        else:
            state_placements.append(Shard(followed.index(axis)))
    return tuple(state_placements)


def _redistribute(local: Tensor, block: Block, state_name: str, parameter: DTensor, *, to_even: bool) -> Tensor:
    """Send the rows of a part to where a `DTensor` of the state's shape has them; or from there to where they are."""
    portion = portion_of(block, parameter)
    followed = followed_axes(block, state_name)
    uneven = _uneven_axis(block, portion)
    if uneven not in followed:
        return local
    mesh_dimension = portion.axes.index(uneven)
    group, size = parameter.device_mesh.get_group(mesh_dimension), parameter.device_mesh.size(mesh_dimension)
    dimension = followed.index(uneven)
    rank = dist.get_rank(group)
    length = block.shape[uneven]
    owned = [_owned_range(block, parameter, mesh_dimension, uneven, process, size) for process in range(size)]
    even = [_chunk(length, size, process) for process in range(size)]
    sources, targets = (owned, even) if to_even else (even, owned)
    rows = local.movedim(dimension, 0).contiguous()
    sent = [len(_overlap(sources[rank], target)) for target in targets]
    received = [len(_overlap(source, targets[rank])) for source in sources]
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows, received, sent, group=group)
    return result.movedim(0, dimension).contiguous()


def _uneven_axis(block: Block, portion: Portion) -> int:
    """Return the axis whose division differs from that of a `DTensor` of the block's shape."""
    return block.part.axis if block.part is not None and block.part.axis in portion.axes else 0


def _owned_range(block: Block, parameter: DTensor, mesh_dimension: int, axis: int, rank: int, size: int) -> range:
    """Return the rows of the block that the rank holds."""
    placement: Any = parameter.placements[mesh_dimension]
    chunk = _chunk(parameter.shape[placement.dim], size, rank)
    if block.index is not None and placement.dim == 0:
        return range(block.shape[axis]) if block.index in chunk else range(0)
    start, length = (block.part.start, block.part.length) if block.part is not None else (0, block.shape[axis])
    return range(min(max(chunk.start - start, 0), length), min(max(chunk.stop - start, 0), length))


def _chunk(length: int, parts: int, index: int) -> range:
    """Return the rows that a `DTensor` has on that rank, as `torch.chunk` divides them."""
    step = ceil(length / parts)
    return range(min(index * step, length), min((index + 1) * step, length))


def _overlap(span: range, other: range) -> range:
    return range(max(span.start, other.start), min(span.stop, other.stop))
