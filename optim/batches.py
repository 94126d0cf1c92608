"""Batches: blocks that are updated together, because one call on several small blocks costs little more than on one.

Blocks share a batch if the same formulas with the same numbers apply to them; low-rank blocks have the same shape as
well, so that their factors can be stacked. A batch is bounded: it is one block, or no larger than a chunk (`rows.py`)
and than the largest block of the plan: the memory that a step needs for a while does not grow with a model's depth.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from optim.blocks import Block, BlockPlan, FirstMoment, SecondMoment
from optim.rows import chunk_elements


class Member(NamedTuple):
    """One block of a parameter that has a gradient, and where its state is."""

    block: Block
    weight: Tensor
    """W, the block's part of the parameter."""
    gradient: Tensor
    """G, the block's part of the parameter's gradient."""
    state: dict[str, Tensor]
    """The parameter's state, under `Block.key`."""

    def kept(self, name: str) -> Tensor:
        """A state tensor of the block."""
        return self.state[self.block.key(name)]


class Likeness(NamedTuple):
    """What blocks of one batch have in common."""

    first_moment: FirstMoment
    second_moment: SecondMoment
    state_dtype: torch.dtype
    decays: bool
    low_rank: tuple[tuple[int, ...], int, int] | None
    """Shape, rank and output axis, where the momentum is low rank."""


def likeness(block: Block) -> Likeness:
    """The batch that a block belongs to, among those of its parameter's type, device, group and step."""
    low_rank = block.first_moment is FirstMoment.LOW_RANK
    return Likeness(
        first_moment=block.first_moment,
        second_moment=block.second_moment,
        state_dtype=block.state_dtype,
        decays=block.decays,
        low_rank=(block.shape, block.rank, block.output_axis) if low_rank else None,
    )


def largest_block(plan: BlockPlan) -> int:
    """Elements of the plan's largest block."""
    return max((prod(block.shape) for block in plan), default=0)


def limit_of(weight: Tensor, *, largest: int) -> int:
    """How many elements of blocks like this one may be worked on at a time, where the largest has `largest`.

    Half as many where the weights are narrower than the arithmetic, which then needs copies of W and G as well.
    """
    narrow = weight.dtype.itemsize < torch.float32.itemsize
    return min(max(1, largest // 2 if narrow else largest), chunk_elements(weight.device))


def bounded(members: Iterable[Member], *, largest: int) -> Iterator[list[Member]]:
    """Cut a list of like blocks into batches, in order."""
    batch: list[Member] = []
    elements = 0
    for member in members:
        size = member.weight.numel()
        if batch and elements + size > limit_of(member.weight, largest=largest):
            yield batch
            batch, elements = [], 0
        batch.append(member)
        elements += size
    if batch:
        yield batch
