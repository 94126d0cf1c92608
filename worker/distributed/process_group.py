"""The processes that train one run together, a device each. They share every batch and take every step alike.

    ProcessGroup(rank, size, mailbox)    joined to the others by torch's default process group, made by their starter
    ALONE                                a group of one, which talks to nobody

Rank 0 alone holds the lease, reports and writes checkpoints, and between two steps it broadcasts what all do next, so
that nobody has to be asked whether all agree. Where one process breaks down alone, it writes why into the mailbox and
ends; the others' next exchange fails, and they look there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from worker.distributed.mailbox import RankMailbox
from worker.errors import RankLostError


@dataclass(kw_only=True)
class ProcessGroup:
    """One process's place in it."""

    rank: int = 0
    size: int = 1
    local_gpu: int = 0
    """Which of the GPUs that this process sees is its own."""
    mailbox: RankMailbox | None = None
    """Where processes leave word for each other; None in a group of one."""
    ended_together: bool = False
    """Whether this process left its training where all do; else the others wait for it, and only the end of its
    connections tells them."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process reports for all."""
        return self.rank == 0

    def shard(self, count: int) -> slice:
        """This process's share of so many rows: in order, and as even as can be."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def most_rows(self, count: int) -> int:
        """How many of so many rows the largest share has."""
        return -(-count // self.size)

    def all_reduce_sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, the same to the bit in each."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def sum_over_ranks(self, values: Sequence[float], device: torch.device) -> float:
        """The sum of all values of all processes; alone it is Python's own."""
        if self.size == 1:
            return sum(values)
        return float(self.all_reduce_sum(torch.tensor(sum(values), dtype=torch.float64, device=device)).item())

    def broadcast(self, word: int) -> int:
        """What rank 0 says, in every process; what the others say is not heard."""
        if self.size == 1:
            return word
        said = torch.tensor([word], device=self._device())
        dist.broadcast(said, src=0)
        return int(said.item())

    def all_gather(self, word: str) -> Sequence[str]:
        """What every process says, by rank; returns when all have said it."""
        if self.size == 1:
            return [word]
        said: list[Any] = [None] * self.size
        dist.all_gather_object(said, word)
        return [str(each) for each in said]

    def cause_of(self, error: BaseException) -> BaseException:
        """The reason for an error: what another process left word of, or that one is gone, or the error itself."""
        if self.mailbox is None:
            return error
        if (fault := self.mailbox.fault()) is not None:
            return fault.as_error()
        if is_exchange_fault(error):
            return RankLostError(
                f"another of the run's {self.size} processes is gone ({_gist(error)}). "
                "Another attempt goes on from the last checkpoint; the logs of the processes say more."
            )
        return error

    def _device(self) -> torch.device:
        """Where words can be exchanged: NCCL knows tensors on GPUs only."""
        on_gpu = dist.get_backend() == "nccl"
        return torch.device("cuda", self.local_gpu) if on_gpu else torch.device("cpu")


ALONE = ProcessGroup()


def _gist(error: BaseException) -> str:
    """What gloo or NCCL says, without the place in its source and its advice."""
    return re.sub(r"^\[\S+\] ", "", str(error)).partition(". ")[0].partition("\n")[0][:200]


def is_exchange_fault(error: BaseException) -> bool:
    """Whether an exchange between processes failed: gloo says so in a plain RuntimeError."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and ("gloo" in str(error) or "Connection closed by peer" in str(error))
