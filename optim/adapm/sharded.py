"""Sums over the processes that share a parameter (`DTensor`): a step on its parts is exact, and gathers no matrix.

Of each block a process holds a range of outputs, a range of inputs, or both (`Portion`). The products that the solvers
take of the momentum M, outputs × inputs, are sums over the axis that they contract, so that each process works out its
part and the sum is all that is exchanged. L is divided as the outputs are, R as the inputs are; what is not divided is
the same everywhere. One iteration of `subspace` exchanges

    sum over inputs     the squared lengths of R's rows (r), then X = R M^T (r × m)
    sum over outputs    X X^T and Q Q^T (r × r each), for Cholesky QR twice, then R = Q^T M (r × n)

and nothing over an axis that is whole. Second moments that processes have in common, per head or per output neuron, are
sums of a few numbers before.

The sums of all blocks go out together, in one all-reduce for each type of number and each group of processes.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from ..plan.blocks import Block, SecondMoment
from ..plan.sharding import Portion

Groups: TypeAlias = "tuple[dist.ProcessGroup, ...]"
"""The processes to sum over, one group after the other; none if everything is here."""


def sum_over_processes(parts: Sequence[Tensor], among: Sequence[Groups]) -> list[Tensor]:
    """Return the sum of each of these parts over the processes that share it.

    All processes of a group must ask for the same in the same order.

    Args:
        parts: This process's.
        among: The processes of each.
    """
    sums = [*parts]
    alike: dict[tuple[Groups, torch.dtype, torch.device], list[int]] = {}
    for index, (part, groups) in enumerate(zip(parts, among, strict=True)):
        if groups:
            alike.setdefault((groups, part.dtype, part.device), []).append(index)
    for (groups, _, _), indices in alike.items():
        flat = torch.cat([parts[index].reshape(-1) for index in indices])
        for group in groups:
            dist.all_reduce(flat, group=group)
        for index, piece in zip(indices, torch.split(flat, [parts[index].numel() for index in indices]), strict=True):
            sums[index] = piece.view(parts[index].shape)
    return sums


def processes_sharing_moments(block: Block, portion: Portion | None) -> Groups:
    """Return the processes that have parts of what shares one second moment; none if all of it is in one of them."""
    if portion is None or block.second_moment is SecondMoment.ELEMENT:
        return ()
    outputs, inputs = portion.groups[block.output_axis], portion.groups[1 - block.output_axis]
    return (*inputs, *(outputs if block.head_size > 1 else ()))
