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
    """The place of a process in its group."""

    rank: int = 0
    size: int = 1
    local_gpu: int = 0
    """The process's own GPU among those that it sees."""
    mailbox: RankMailbox | None = None
    """The mailbox of the processes; None in a group of one."""
    ended_together: bool = False
    """Whether this process left its training where all do; else the others wait for it, and only the end of its
    connections tells them."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process reports for all."""
        return self.rank == 0

    def shard(self, count: int) -> slice:
        """Return this process's share of so many rows: in order, and as even as can be."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def most_rows(self, count: int) -> int:
        """Return the rows of the largest share."""
        return -(-count // self.size)

    def all_reduce_sum(self, value: Tensor) -> Tensor:
        """Return the sum over all processes, the same to the bit in each."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def sum_over_ranks(self, values: Sequence[float], device: torch.device) -> float:
        """Return the sum of all values of all processes; alone it is Python's own."""
        if self.size == 1:
            return sum(values)
        return float(self.all_reduce_sum(torch.tensor(sum(values), dtype=torch.float64, device=device)).item())

    def broadcast(self, word: int) -> int:
        """Return the word of rank 0, in every process; the others' words are ignored."""
        if self.size == 1:
            return word
        message = torch.tensor([word], device=self._device())
        dist.broadcast(message, src=0)
        return int(message.item())

    def all_gather(self, word: str) -> Sequence[str]:
        """Return the word of every process, by rank, once all have sent it."""
        if self.size == 1:
            return [word]
        messages: list[Any] = [None] * self.size
        dist.all_gather_object(messages, word)
        return [str(message) for message in messages]

    def cause_of(self, error: BaseException) -> BaseException:
        """Return the reason for an error: what another process left word of, or that one is gone, or the error
        itself."""
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
        """Return the device on which words can be exchanged: NCCL knows tensors on GPUs only."""
        on_gpu = dist.get_backend() == "nccl"
        return torch.device("cuda", self.local_gpu) if on_gpu else torch.device("cpu")


ALONE = ProcessGroup()


def _gist(error: BaseException) -> str:
    """Return the message of gloo or NCCL, without the place in its source and its advice."""
    return re.sub(r"^\[\S+\] ", "", str(error)).partition(". ")[0].partition("\n")[0][:200]


def is_exchange_fault(error: BaseException) -> bool:
    """Return whether an exchange between processes failed: gloo says so in a plain RuntimeError."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and ("gloo" in str(error) or "Connection closed by peer" in str(error))
