"""An optimizer step: draw the batch, add up the gradients of its micro-batches, clip, update; each part timed.

draw ──► [forward, backward] for every micro-batch ──► clip ──► optimizer.step() ──► gradients freed

With several ranks each draws its own share of the batch; the last backward pass gives all of them the gradients of the
whole, so that norm, clipping and update are the same in each.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from optim.plan.sharding import is_distributed
from worker.distributed.process_group import ALONE, ProcessGroup
from worker.meters.breakdown import BreakdownMeter
from worker.meters.phases import Phase, PhaseClock
from worker.spec.run import Workload
from worker.tasks.task import Task
from worker.training.averaging import WeightAverage
from worker.training.device import synchronize


@dataclass(frozen=True, kw_only=True)
class StepTaken:
    """The results of one step; if a figure is not a finite number the optimizer did not move."""

    loss: float
    """Mean over the batch, before the step; nats per token."""
    grad_norm: float
    """Global L2 norm before clipping."""
    seconds: Mapping[str, float]
    """The seconds of the step and its phases, as `PhaseClock` has them."""

    def is_finite(self) -> bool:
        """Return whether the step was taken."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


class Stepper:
    """Takes steps of one task with one optimizer."""

    def __init__(
        self,
        task: Task[Any],
        optimizer: torch.optim.Optimizer,
        workload: Workload,
        device: torch.device,
        micro_batch_sequences: int,
        group: ProcessGroup = ALONE,
        *,
        sharding: ModuleType | None = None,
    ) -> None:
        self.task, self.optimizer, self.device = task, optimizer, device
        self.sharding, self.is_sharded = sharding, sharding is not None
        """`worker.distributed.sharding` where each process has a part of the model, and whether it has."""
        self._group, self._loss = group, SharedLoss(task, group, is_sharded=self.is_sharded)
        self.micro_batch_sequences = micro_batch_sequences
        self.updating = False
        """Whether the newest step reached the optimizer."""
        self._clip_norm, self._bf16 = workload.clip_grad_norm, workload.precision == "bf16"
        self._parameters = [p for p in task.model.parameters() if p.requires_grad]
        decay = workload.ema_decay
        self.average = None if decay is None else WeightAverage(task.model, decay)
        """What is validated instead of the last weights, where the workload says so."""

    def take(
        self, step: int, meter: BreakdownMeter | None = None, *, most_micro_batches: int | None = None
    ) -> StepTaken:
        """Take a step on the batch of `step` (from 0) at the rates of the optimizer's groups.

        Args:
            step: Whose batch.
            meter: Records the last micro-batch, which is a full one, and the update.
            most_micro_batches: Leaves out the batch's further ones: a trial that stands for the whole step.

        An error leaves no gradients; where `updating` is still false, weights and optimizer are as they were.
        """
        self.updating = False
        clock = PhaseClock(self.device)
        with clock.phase(Phase.DATA), self.precision():
            *earlier, last = self._pieces(step)[:most_micro_batches]
        try:
            with self._loss.accumulate_locally():
                losses = [self._gradients(micro_batch, clock) for micro_batch in earlier]
            with meter.record() if meter else nullcontext():
                losses.append(self._gradients(last, clock))
                if meter is not None:
                    meter.note_gradients()
                # Read before the optimizer steps: a model with a loss that is not a number keeps its last good weights.
                train_loss = self._group.all_reduce_sum(torch.stack(losses).sum()).item()
                if self._clip_norm is None:
                    norm = torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
                else:
                    norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
                # Of shards it is what is here, to be summed.
                grad_norm = (norm.full_tensor() if is_distributed(norm) else norm).item()
                if math.isfinite(train_loss) and math.isfinite(grad_norm):
                    self.updating = True
                    with clock.phase(Phase.OPTIMIZER):
                        self.optimizer.step()
                        if self.average is not None:
                            self.average.update()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        synchronize(self.device)
        return StepTaken(loss=train_loss, grad_norm=grad_norm, seconds=clock.seconds())

    def _pieces(self, step: int) -> list[Any]:
        """Return the step's micro-batches; what an uneven cut leaves over comes first: the highest moment is in a full
        one."""
        pieces = list(self.task.draw(step, self.micro_batch_sequences))
        uneven = self.task.batch_sequences % self.micro_batch_sequences
        return [pieces[-1], *pieces[:-1]] if uneven else pieces

    def _gradients(self, micro_batch: Any, clock: PhaseClock) -> torch.Tensor:
        with clock.phase(Phase.FORWARD), self.precision():
            loss, share = self._loss.gradients(micro_batch)
        with clock.phase(Phase.BACKWARD):
            loss.backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
        return share

    def breakdown_meter(self) -> BreakdownMeter:
        """Return a meter of the memory of its steps."""
        averages = self.average.state().values() if self.average else ()
        return BreakdownMeter(self.task.model, self.optimizer, self.device, more=tuple(averages))

    def validation_loss(self) -> float:
        """Return the task's validation loss, in the precision of the training."""
        with self.precision():
            return self.task.validation_loss(self.micro_batch_sequences)

    def precision(self) -> AbstractContextManager[object]:
        """Return bf16 autocast if the run requests it; it casts each weight once for every `with`."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._bf16)


class _LossModule(nn.Module):
    """The module that DDP wraps: its forward pass ends with the loss, and its parameters are the model's."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__()
        self.model = task.model
        self._task = task

    def forward(self, micro_batch: Any) -> torch.Tensor:
        """Return the micro-batch's share of the batch's loss, a scalar."""
        return self._task.training_loss(micro_batch)


class SharedLoss:
    """A task's loss over all ranks: its backward passes give the gradients of the whole batch in every process.

    A share is the sum over some sequences divided by the count of the *whole* batch, so that shares add up, whereas DDP
    and FSDP take the mean over n processes: each gives n times its share. Alone it is `task.training_loss`.
    """

    def __init__(self, task: Task[Any], group: ProcessGroup, *, is_sharded: bool = False) -> None:
        """The model is on its device already; it stays as it is, with its names."""
        self._task, self._size = task, group.size
        # Gradients lie in DDP's own buffers, so that there is no second copy of them, and nothing draws or changes
        # buffers of a model in training that would have to be sent around.
        self._shared = (
            DistributedDataParallel(_LossModule(task), gradient_as_bucket_view=True, forward_sync_buffers=False)
            if group.size > 1 and not is_sharded
            else None
        )

    def gradients(self, micro_batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (the loss for the backward pass, this process's share of the batch's loss); scalars."""
        loss = self._task.training_loss(micro_batch) if self._shared is None else self._shared(micro_batch)
        if self._size == 1:
            return loss, loss.detach()
        return loss * self._size, loss.detach()

    def accumulate_locally(self) -> AbstractContextManager[None]:
        """Add up gradients of this process alone within the block; the first backward pass outside sends them around.
        Sharded gradients are sent each time: added up, they would have to be whole."""
        return nullcontext() if self._shared is None else self._shared.no_sync()
