"""A task's loss over all ranks: the gradients of its backward passes are those of the whole batch in every process.

    alone            task.training_loss
    several          DDP around it: each process has the share of its own sequences, and the gradients are averaged

A share is the sum over some sequences divided by the count of the *whole* batch, so that shares add up, whereas DDP
takes the mean over n processes: each gives n times its share.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from worker.distributed.process_group import ProcessGroup
from worker.tasks.task import Task


class _Loss(nn.Module):
    """What DDP wraps: a module whose forward pass ends with the loss, and whose parameters are the model's."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__()
        self.model = task.model
        self._task = task

    def forward(self, micro_batch: Any) -> torch.Tensor:
        """The micro-batch's share of the batch's loss, a scalar."""
        return self._task.training_loss(micro_batch)


class SharedLoss:
    """Takes micro-batches of one task."""

    def __init__(self, task: Task[Any], group: ProcessGroup) -> None:
        """The model is on its device already; it stays as it is, with its names."""
        self._task, self._size = task, group.size
        # Gradients lie in DDP's own buffers, so that there is no second copy of them, and nothing draws or changes
        # buffers of a model in training that would have to be sent around.
        self._shared = (
            DistributedDataParallel(_Loss(task), gradient_as_bucket_view=True, forward_sync_buffers=False)
            if group.size > 1
            else None
        )

    def gradients(self, micro_batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """(what the backward pass begins with, this process's share of the batch's loss); scalars."""
        if self._shared is None:
            loss = self._task.training_loss(micro_batch)
            return loss, loss.detach()
        loss = self._shared(micro_batch)
        return loss * self._size, loss.detach()

    @contextmanager
    def kept_apart(self) -> Iterator[None]:
        """Within, backward passes add up gradients of this process alone; the first one outside sends them around."""
        if self._shared is None:
            yield
            return
        with self._shared.no_sync():
            yield
