"""Sums over the processes that share a parameter (`DTensor`): a step on its parts is exact, and gathers no matrix.

Of each block a process holds a range of outputs, a range of inputs, or both (`Portion`). The products that the solvers
take of the momentum M, outputs × inputs, are sums over the axis that they contract, so that each process works out its
part and the sum is all that is exchanged. L is divided as the outputs are, R as the inputs are; what is not divided is
the same everywhere. One iteration of `subspace` exchanges

    sum over inputs     the squared lengths of R's rows (r), then X = R M^T (r × m)
    sum over outputs    X X^T and Q Q^T (r × r each), for Cholesky QR twice, then R = Q^T M (r × n)

and nothing over an axis that is whole. Second moments that processes have in common, per head or per output neuron, are
sums of a few numbers more.

The sums of all blocks go out together: a round is one all-reduce for each type of number and each group of processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from ..plan.blocks import Block, FirstMoment, SecondMoment
from ..plan.sharding import Portion

Groups: TypeAlias = "tuple[dist.ProcessGroup, ...]"
"""The processes to sum over, one group after the other; none if everything is here."""


@dataclass(eq=False)
class Sum:
    """A sum over processes."""

    value: Tensor
    """This process's summand; the sum after the round."""
    groups: Groups


class Exchange:
    """The rounds of sums that a step waits for. All processes of a group must ask for the same in the same order."""

    def __init__(self) -> None:
        self._asked: list[Sum] = []

    def ask(self, part: Tensor, groups: Groups) -> Sum:
        """Return a sum that is there after the next round."""
        self._asked.append(Sum(part, groups))
        return self._asked[-1]

    def total(self, parts: Sequence[Tensor], among: Sequence[Groups]) -> list[Tensor]:
        """Return the sum of each of these parts, after a round if any of them has others elsewhere."""
        if not any(among):
            return [*parts]
        sums = [self.ask(part, groups) for part, groups in zip(parts, among, strict=True)]
        self.settle()
        return [own.value for own in sums]

    def settle(self) -> None:
        """Work out all sums that have been asked for, in a round."""
        alike: dict[tuple[Groups, torch.dtype, torch.device], list[Sum]] = {}
        for asked in self._asked:
            if asked.groups:
                alike.setdefault((asked.groups, asked.value.dtype, asked.value.device), []).append(asked)
        self._asked.clear()
        for (groups, _, _), members in alike.items():
            flat = torch.cat([member.value.reshape(-1) for member in members])
            for group in groups:
                dist.all_reduce(flat, group=group)
            pieces = torch.split(flat, [member.value.numel() for member in members])
            for member, piece in zip(members, pieces, strict=True):
                member.value = piece.view(member.value.shape)


def needs_exchange(block: Block, portion: Portion) -> bool:
    """Return whether the processes need sums from each other to move that block."""
    if not any(portion.groups):
        return False
    if block.first_moment is FirstMoment.LOW_RANK:
        return True
    if block.second_moment is SecondMoment.ELEMENT:
        return False
    return bool(portion.groups[1 - block.output_axis]) or block.head_size > 1
