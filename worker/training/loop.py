"""The training loop, the same for every task and optimizer: check_stop, step, evaluate, report, keep a checkpoint.

Everything that a step depends on is in the checkpoint or a function of (seed, step), so a run that was killed and
resumed gives the same losses to the bit on one device.
"""

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from optim.train_eval_weights import result_weights
from worker.distributed.process_group import ProcessGroup
from worker.errors import CheckpointError, RunStoppedError, TerminatedError
from worker.meters.clock import DeviceClock
from worker.meters.memory import MemoryMeter
from worker.meters.probes import Probing
from worker.meters.usage import UsageMeter
from worker.records.protocol import CheckpointNotice, Command, Stopped
from worker.records.result import MemoryBreakdown, Point
from worker.reporting.reporter import Reporter
from worker.spec.run import Workload
from worker.tasks.samples import SampleWriter
from worker.termination import Termination
from worker.training.checkpoint import CheckpointStore, CheckpointTimer
from worker.training.device import (
    MemoryCap,
    OverMemoryCapError,
    free_memory,
    is_out_of_memory,
    load_random_state,
    random_state,
)
from worker.training.micro_batch import next_smaller
from worker.training.progress import TrainingProgress, finite_or_none
from worker.training.schedule import LearningRateScheduler
from worker.training.step import Stepper, StepTaken
from worker.words import pluralize

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """The parts that a training works with but does not own."""

    device: torch.device
    reporter: Reporter
    checkpoints: CheckpointStore
    checkpoint_seconds: float
    memory: MemoryMeter
    usage: UsageMeter = field(default_factory=UsageMeter)
    samples: SampleWriter | None = None
    """Writes texts at evaluations, where the run asks for them."""
    clock: DeviceClock
    termination: Termination
    cap: MemoryCap
    group: ProcessGroup = field(default_factory=ProcessGroup)
    initial_weights_sha256: str | None = None
    """The hash of the initial weights' files; None if weights are drawn."""
    copied: Callable[[CheckpointNotice], None] | None = None
    """Has a checkpoint copied to where other machines find it, without waiting for that."""


RECORDED_STEPS: Final = 2
"""The first steps of an attempt are recorded for the memory breakdown: the first makes the optimizer's state, the
second counts. They take longer for it, and are warm-up for every mean of times."""


_ORDERS: Final[tuple[Command | None, ...]] = (*Command, None)
"""The orders that rank 0 sends the others by their index; None is to leave."""


class Training:
    """A model under training; `progress` says how far it is."""

    def __init__(
        self, stepper: Stepper, workload: Workload, progress: TrainingProgress, context: TrainingContext
    ) -> None:
        self.progress = progress
        self._stepper, self._task, self._optimizer = stepper, stepper.task, stepper.optimizer
        self._workload, self._context = workload, context
        self._meter = stepper.breakdown_meter()
        self._recorded = 0
        optimizer, probes = stepper.optimizer, workload.probes
        observes = probes is not None and context.group.is_rank_zero
        self._probing = Probing(stepper.task.model, optimizer, probes) if probes is not None and observes else None
        self._rate = LearningRateScheduler(optimizer, workload.budget.steps, workload.schedule)
        self._peak_lr = max(float(group["lr"]) for group in optimizer.param_groups)
        self._timer = CheckpointTimer(context.checkpoint_seconds)

    def resume(self, notice: CheckpointNotice | None) -> int:
        """Load the newest good checkpoint, if there is one; returns the step to go on from, 0 for a fresh start.

        Raises `CheckpointError` if it comes from other data or other initial weights than there are now.
        """
        state = self._context.checkpoints.newest(notice, mapped=self._stepper.is_sharded)
        if state is not None:
            self._require_same_origin(state["origin"])
            self.progress.load_state(state["progress"])
            self._load_weights(state)
            load_random_state(state["random"])
            if self._probing is not None:
                self._probing.load_state(state["probes"])
        steps = self._context.group.all_gather(str(self.progress.step))
        if len(set(steps)) > 1:
            raise CheckpointError(
                f"the processes of the run found checkpoints of different steps ({', '.join(steps)}) in "
                f"{self._context.checkpoints.folder}. All of them need the same folder."
            )
        self._context.reporter.begin(None if state is None else self.progress.step)
        if faults := self._context.checkpoints.passed_over:
            begun = "began anew" if state is None else f"went on from step {self.progress.step}"
            self._context.reporter.note(f"{begun}: {'; '.join(faults)}")
        return self.progress.step

    def _load_weights(self, state: dict[str, Any]) -> None:
        """Load what one process would, or this process's part of it."""
        model, optimizer = state["model"], state["optimizer"]
        average: Any = state.get("average")
        if (sharding := self._stepper.sharding) is not None:
            model = sharding.local_model_state(self._task.model, model)
            optimizer = sharding.local_optimizer_state(self._optimizer, optimizer)
            average = sharding.local_model_state(self._task.model, average or {})
        self._task.model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)
        if self._stepper.average is not None:
            self._stepper.average.load_state(average, self.progress.step)

    def train(self) -> None:
        """Train to the end of the budget, or to the first loss that is not a number.

        Raises:
            RunStoppedError: the service asked for it; a checkpoint was written.
            TerminatedError: SIGTERM came; a checkpoint was written.
            LeaseRevokedError: the run belongs to somebody else now; nothing was written.
        """
        self._context.usage.restart()
        if self.progress.initial_val_loss is None:  # the loss that training has to get below
            self.progress.add_evaluation(self._validation_loss())
            rss_bytes = self._context.memory.sample()
            val_loss = finite_or_none(self.progress.val_loss)
            self._context.reporter.point(Point(step=0, tokens=0, val_loss=val_loss, host_rss_bytes=rss_bytes))
        while not self.progress.is_finished():
            self.advance()

    def advance(self) -> None:
        """Do one turn of the loop: check_stop, keep a checkpoint if one is due, take a step and report it."""
        is_checkpoint_due = self._check_stop()
        if self.progress.stopped_early:
            return
        if is_checkpoint_due:
            self._save_if_possible()  # right after `_check_stop`: a worker without a lease must not write
        point = self._step()
        if point is not None:
            self._context.reporter.point(point)

    def _has_part_in_checkpoints(self) -> bool:
        """Return whether this process writes them, or gives its part of the model."""
        return self._context.group.is_rank_zero or self._stepper.is_sharded

    def _step(self) -> Point | None:
        """Take one optimizer step and, where it is due, evaluate; None if the loss stopped being a number."""
        step = self.progress.step
        factor = self._rate.apply(step)
        outcome = self._take_observed_step(step)
        if not outcome.is_finite():
            self.progress.fault = (
                f"At step {step + 1} the training loss is {outcome.loss} and the gradient norm {outcome.grad_norm}."
            )
            return None
        recorded = self._record(step + 1)
        self.progress.add_step(outcome.loss, outcome.seconds, warmup=recorded is not None)
        if recorded is not None:
            try:
                self._context.cap.check(recorded)
            except OverMemoryCapError:
                if not self._step_down():
                    raise
        val_loss, done = None, self.progress.step
        if done % self._workload.evaluation.every_steps == 0 or done >= self.progress.steps:
            self.progress.add_evaluation(self._validation_loss())
            val_loss = finite_or_none(self.progress.val_loss)
        return Point(
            step=step + 1,
            tokens=(step + 1) * self._task.tokens_per_step,
            train_loss=outcome.loss,
            val_loss=val_loss,
            lr=self._peak_lr * factor,
            grad_norm=outcome.grad_norm,
            host_rss_bytes=self._context.memory.sample(),
            **outcome.seconds,
            **self._context.usage.figures(),
            **getattr(self._task, "figures", {}),  # what some tasks tell of a step beside its loss
        )

    def _take_observed_step(self, step: int) -> StepTaken:
        """Take the step, under observation where there are probes; their time is not the step's."""
        if self._probing is None:
            return self._take(step)
        with self._probing.watch(step + 1):
            outcome = self._take(step)
        for observation in self._probing.take_observations():
            self._context.reporter.observe(observation)
        inside = {name: outcome.seconds[name] - self._probing.seconds for name in ("step_seconds", "optimizer_seconds")}
        return replace(outcome, seconds={**outcome.seconds, **inside})

    def _take(self, step: int) -> StepTaken:
        """Take the step; where memory runs out on the way to the update, again in smaller pieces if the run may."""
        while True:
            meter = self._meter if self._recorded < RECORDED_STEPS else None
            try:
                return self._stepper.take(step, meter)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self._stepper.updating or not self._step_down():
                    raise
            free_memory()  # outside of the handler: the error holds on to the step's tensors

    def _step_down(self) -> bool:
        """Use the next smaller micro-batch, where the run leaves that to us and there is one."""
        size = self._stepper.micro_batch_sequences
        smaller_size = next_smaller(self._task.batch_sequences, size)
        if self._workload.execution.micro_batch_sequences != "auto" or smaller_size is None:
            return False
        logger.warning(
            "out of memory with micro-batches of %s: going on with %d", pluralize(size, "sequence"), smaller_size
        )
        self._stepper.micro_batch_sequences = self.progress.micro_batch_sequences = smaller_size
        self._recorded = 0
        return True

    def _record(self, step: int) -> MemoryBreakdown | None:
        """Take note of the memory of a recorded step; None if it was not one."""
        if self._recorded >= RECORDED_STEPS:
            return None
        self._recorded += 1
        self.progress.memory = self._meter.result(step, self._stepper.micro_batch_sequences)
        return self.progress.memory

    def _validation_loss(self) -> float:
        """Return the loss of what is held for the result, by the optimizer or as an average: maybe not the weights that
        are trained."""
        average = self._stepper.average
        with result_weights(self._optimizer), nullcontext() if average is None else average.in_place():
            loss = self._stepper.validation_loss()
            self._write_samples()
        return loss

    def _write_samples(self) -> None:
        """Have the evaluated weights write, where that is asked for; a lack of memory then ends no training."""
        writer, context = self._context.samples, self._context
        if writer is None or not context.group.is_rank_zero:
            return
        try:
            with self._stepper.precision():
                samples = writer.write(self._task.model, self.progress.step)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            context.reporter.note(f"no texts were written at step {self.progress.step}: the memory did not hold them")
        else:
            context.reporter.observe(samples)
            return
        free_memory()  # outside of the handler: the error holds on to tensors

    def _check_stop(self) -> bool:
        """Stop where the service or the system asks for it, after a checkpoint; finish at once where that is asked;
        else whether a checkpoint is due. All ranks do as rank 0."""
        group, word = self._context.group, 0
        if group.is_rank_zero:
            command: Command | None = self._context.reporter.command()
            if command is Command.CONTINUE and self._context.termination.is_requested:
                command = None
            word = 2 * _ORDERS.index(command) + self._timer.is_due()
        order_index, is_due = divmod(group.broadcast(word), 2)
        order = _ORDERS[order_index]
        if order is Command.CONTINUE:
            return bool(is_due) and self._has_part_in_checkpoints()
        if order is Command.STOP_EARLY:
            self.progress.stopped_early = True
            return False
        is_saved = self._save_if_possible() if self._has_part_in_checkpoints() else True
        if order is not None:
            raise RunStoppedError(
                Stopped(command=order, step=self.progress.step, device_seconds=self._context.clock.seconds())
            )
        saved = "a checkpoint of that step was written, the next attempt goes on from it."
        lost = "no checkpoint of that step could be written, the next attempt goes on from the one before."
        raise TerminatedError(f"told to leave (SIGTERM) at step {self.progress.step}; {saved if is_saved else lost}")

    def _save_if_possible(self) -> bool:
        """Write a checkpoint as `save` does; whether there is one. A full disk must not end a training that is in good
        health, nor keep it from obeying; the next checkpoint may find room."""
        started = time.monotonic()
        try:
            self.save()
        except OSError as error:
            logger.warning("no checkpoint at step %d: %s", self.progress.step, error)
            return False
        finally:
            self._timer.restart(time.monotonic() - started)
        return True

    def save(self) -> None:
        """Write a checkpoint of the present step, as rank 0 of what all give; raises `OSError` on a full disk."""
        state = self._state()
        if not self._context.group.is_rank_zero:
            return
        self._context.reporter.persist()  # the points up to here must outlive this process like the state does
        notice = self._context.checkpoints.save(self.progress.step, state)
        self._context.reporter.checkpoint(notice)  # first: no other machine goes on from one that it does not know
        if self._context.copied is not None:
            self._context.copied(notice)

    def _origin(self) -> dict[str, str | None]:
        """Return the origin of the training beside its specification, which names but does not contain it."""
        return {"data": self._task.data_hash, "initial weights": self._context.initial_weights_sha256}

    def _require_same_origin(self, old_origin: dict[str, str | None]) -> None:
        origin = self._origin()
        different = [
            f"{name}: {old_origin[name]}, now {origin[name]}" for name in origin if origin[name] != old_origin[name]
        ]
        if different:
            raise CheckpointError(
                f"the checkpoints in {self._context.checkpoints.folder} come from something else than there is now "
                f"(SHA-256; {'; '.join(different)}). Put back what the run began with, or submit it anew."
            )

    def _state(self) -> dict[str, Any]:
        weights = {
            "model": self._task.model.state_dict(keep_vars=self._stepper.is_sharded),
            "optimizer": self._optimizer.state_dict(),
        }
        if self._stepper.average is not None:
            weights["average"] = self._stepper.average.state()
        if (sharding := self._stepper.sharding) is not None:
            weights = sharding.whole_state(weights, is_kept=self._context.group.is_rank_zero)
        return {
            "origin": self._origin(),
            **weights,
            "progress": self.progress.state(),
            "random": random_state(),
            "probes": None if self._probing is None else self._probing.state(),
        }
