"""The state of parameters that several processes share: which part of it is here, and how it is saved.

The optimizer keeps plain tensors, the parts of each process. A state dict has every tensor at its whole shape, under
the name that it has in one process: as a `DTensor` where processes hold parts of it, and as a plain tensor where all
have the same. `torch.distributed.checkpoint` saves and loads both, for any number of processes.

A `DTensor` divides its rows evenly. Blocks whose edges lie inside shards (the query rows of a fused matrix, one expert
of a stack) are divided otherwise: they are saved as the sum of every process's part among zeros, which a `DTensor`
then divides, and loaded from the whole. So every process must take part in `state_dict` and `load_state_dict`.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from ..plan.blocks import Block
from ..plan.sharding import Portion, is_distributed, local_ranges, portion_of
from .groups import followed_axes, own_ranges


def as_whole(local: Tensor, block: Block, state_name: str, parameter: DTensor) -> Tensor:
    """Return the saved form of this process's part: a `DTensor` of the whole shape, or the same tensor if it is
    whole."""
    portion, shape = portion_of(block, parameter), block.state_shapes[state_name]
    placements = own_placements = _placements(block, state_name, portion, parameter)
    if all(placement.is_replicate() for placement in placements):
        return local
    if not portion.is_even:
        whole = local.new_zeros(shape)
        _cut_out(whole, own_ranges(block, state_name, portion)).copy_(local)
        local, own_placements = whole, tuple(Partial() if kind.is_shard() else kind for kind in placements)
    stride = tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
    return DTensor.from_local(
        local, parameter.device_mesh, own_placements, run_check=False, shape=torch.Size(shape), stride=stride
    ).redistribute(placements=placements)


def part_of(saved: Tensor, block: Block, state_name: str, parameter: Tensor) -> Tensor:
    """Return the local part of a saved tensor, whatever number of processes saved it."""
    if not is_distributed(parameter):
        return _whole(saved)
    portion = portion_of(block, parameter)
    if (
        is_distributed(saved)
        and portion.is_even
        and saved.device_mesh == parameter.device_mesh
        and saved.placements == _placements(block, state_name, portion, parameter)
    ):
        return saved.to_local()
    return _cut_out(_whole(saved), own_ranges(block, state_name, portion)).clone()


def divide_like(saved: Tensor, parameter: Tensor) -> Tensor:
    """Return a tensor of a parameter's shape, saved by this many processes or others, divided as the parameter is."""
    if not is_distributed(parameter):
        return _whole(saved)
    if (
        is_distributed(saved)
        and saved.device_mesh == parameter.device_mesh
        and saved.placements == parameter.placements
    ):
        return saved
    return DTensor.from_local(
        _cut_out(_whole(saved).to(parameter.device), local_ranges(parameter)).clone(),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _whole(saved: Tensor) -> Tensor:
    return saved.full_tensor() if is_distributed(saved) else saved


def _cut_out(whole: Tensor, ranges: Sequence[range]) -> Tensor:
    return whole[tuple(slice(span.start, span.stop) for span in ranges)]


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
