"""The story of a training in the log of its attempt: a bounded number of lines, however long the training is."""

import logging
from typing import Final

from worker.records.result import Point, Result
from worker.spec.run import RunSpec
from worker.words import pluralize

logger = logging.getLogger(__name__)

MOST_LOGGED: Final = 50
"""Lines of a log on steps, and as many on evaluations: some 15 kB in all, for a tail of a page."""


class Story:
    """Tells what is trained, of some steps and evaluations, and what came of it."""

    def __init__(self, spec: RunSpec) -> None:
        self._steps = spec.workload.budget.steps
        self._unit = spec.workload.task.batch_unit
        self._loss_name = spec.workload.task.loss_name
        batch, length = spec.workload.budget.batch_sequences, spec.workload.data.sequence_length_tokens
        self._step_tokens = batch * length
        self._what = (
            f"{spec.workload.model} with {spec.optimizer.name} at learning rate {spec.optimizer.lr:g}, "
            f"seed {spec.seed}: {pluralize(self._steps, 'step')} of {self._step_tokens} {self._unit}"
        )
        evaluations = self._steps // spec.workload.evaluation.every_steps + 2
        self._evaluations_a_line = -(-evaluations // MOST_LOGGED)
        self._evaluations = 0
        self._step = 0
        self._checkpoint_step: int | None = None

    def begin(self, after_step: int | None) -> None:
        """Say what is trained, and from where on."""
        logger.info("training %s, %s", self._what, f"going on after step {after_step}" if after_step else "from step 0")

    def point(self, point: Point) -> None:
        """Tell of some steps and evaluations."""
        is_last = point.step >= self._steps
        if point.val_loss is not None:
            if self._evaluations % self._evaluations_a_line == 0 or is_last:
                logger.info("step %d of %d: %s %.4f", point.step, self._steps, self._loss_name, point.val_loss)
            self._evaluations += 1
        is_due = point.step * MOST_LOGGED // self._steps > self._step * MOST_LOGGED // self._steps
        self._step = point.step
        if point.step and (is_due or is_last):
            share = 100 * point.step // self._steps
            logger.info("step %d of %d (%d %%): %s", point.step, self._steps, share, self._describe(point))

    def checkpoint(self, step: int) -> None:
        """Remember it for the next line: checkpoints come every few seconds."""
        self._checkpoint_step = step

    def end(self, result: Result) -> None:
        """Say what came of it."""
        peak, parts = result.peak_memory, result.memory_breakdown
        figures = [
            "" if parts is None else f"{parts.peak_bytes / 1e6:,.1f} MB of tensors",
            "" if peak.allocator_bytes is None else f"{peak.allocator_bytes / 1e6:,.1f} MB allocated",
            f"{peak.host_rss_bytes / 1e6:,.0f} MB of the process on the host",
        ]
        state_mb = result.optimizer_state_bytes / 1e6
        logger.info("peak memory: %s; optimizer state %.1f MB", ", ".join(filter(None, figures)), state_mb)
        logger.info(
            "ended after %s, %.1f s of its device: %s",
            pluralize(result.steps, "step"),
            result.device_seconds,
            result.verdict_reason,
        )

    def _describe(self, point: Point) -> str:
        seconds, loss, rate, norm = point.step_seconds, point.train_loss, point.lr, point.grad_norm
        figures = [
            "training loss is not a number" if loss is None else f"training loss {loss:.4f}",
            "" if rate is None else f"learning rate {rate:.3g}",
            "" if norm is None else f"gradient norm {norm:.3g}",
            "" if not seconds else f"{1000 * seconds:.1f} ms a step, {self._step_tokens / seconds:,.0f} {self._unit}/s",
            "" if self._checkpoint_step is None else f"checkpoint of step {self._checkpoint_step}",
        ]
        return ", ".join(filter(None, figures))
