"""The progress of a training: the part of a result that grows with its steps and goes into checkpoints."""

import math
import statistics
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from worker.records.result import MemoryBreakdown, Verdict

TIMES = ("step_seconds", "data_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds")
"""The series of seconds, one value a step each."""
_SERIES = ("train_losses", *TIMES)


def finite_or_none(value: float | None) -> float | None:
    """Return the value, or None if it is not a finite number: records hold finite numbers only."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(kw_only=True)
class TrainingProgress:
    """Counts, losses and times up to now; each series has one value a step."""

    steps: int
    """The whole budget."""
    loss_name: str = "validation loss"
    loss_unit: str = " nats"
    """The task's name of its validation loss, and its unit with a space before it."""
    step: int = 0
    """Optimizer steps done."""
    initial_val_loss: float | None = None
    val_loss: float | None = None
    """The newest validation loss."""
    lowest_val_loss: float = math.inf
    """The lowest validation loss after the first step."""
    fault: str | None = None
    """A sentence, once the loss has stopped being a number."""
    stopped_early: bool = False
    """Asked to finish before the end of the budget; not part of a checkpoint, since whoever resumes is asked again."""
    train_losses: "array[float]" = field(default_factory=lambda: array("d"))
    step_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    data_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    forward_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    backward_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    optimizer_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    warmup_steps: int = 0
    warmup_seconds: float = 0.0
    """The first steps of every attempt: compilation, allocation and recording make them slower."""
    micro_batch_sequences: int | None = None
    """Settled once and kept: another one would move the losses by rounding."""
    memory: MemoryBreakdown | None = None
    """The memory of the newest recorded step."""

    def is_finished(self) -> bool:
        """Return whether there is no further step to take."""
        return self.fault is not None or self.stopped_early or self.step >= self.steps

    def add_step(self, train_loss: float, seconds: Mapping[str, float], *, warmup: bool = False) -> None:
        """Count one optimizer step, which took so long, by the names in `TIMES`."""
        self.step += 1
        if warmup:
            self.warmup_steps += 1
            self.warmup_seconds += seconds["step_seconds"]
        self.train_losses.append(train_loss)
        for name, value in seconds.items():
            getattr(self, name).append(value)

    def add_evaluation(self, val_loss: float) -> None:
        """Take note of a validation loss at the present step."""
        if self.step == 0:
            self.initial_val_loss = val_loss
        self.val_loss = val_loss
        self.lowest_val_loss = min(self.lowest_val_loss, val_loss) if self.step else self.lowest_val_loss
        if not math.isfinite(val_loss):
            self.fault = f"The {self.loss_name} after step {self.step} is {val_loss}."

    def final_val_loss(self) -> float | None:
        """Return the validation loss after the last step of the budget; None if that was not reached or not
        finite."""
        return finite_or_none(self.val_loss) if self.step >= self.steps else None

    def final_train_loss(self) -> float | None:
        """Return the mean training loss over the last tenth of the steps done."""
        tail = self.train_losses[-max(1, len(self.train_losses) // 10) :]
        return statistics.fmean(tail) if tail else None

    def productive_seconds(self) -> float:
        """Time spent in steps, over all attempts; evaluation and checkpoints excluded."""
        return math.fsum(self.step_seconds)

    def steps_per_second(self) -> float | None:
        """Return steps after warm-up by their time; of all steps where there were no others; None before the first."""
        steps, seconds = self.step - self.warmup_steps, self.productive_seconds() - self.warmup_seconds
        if not steps:
            steps, seconds = self.step, self.productive_seconds()
        return steps / seconds if steps else None

    def median(self, series: str) -> float | None:
        """Return the median of one of the series of seconds over all steps, None before the first."""
        values = getattr(self, series)
        return statistics.median(values) if values else None

    def verdict(self) -> tuple[Verdict, str]:
        """Return the end of the training, and the reason in a sentence."""
        if self.fault is not None:
            return Verdict.DIVERGED, self.fault
        assert self.initial_val_loss is not None
        assert self.val_loss is not None
        if self.stopped_early and self.step < self.steps:
            course = f"the {self.loss_name} had gone from {self.initial_val_loss:.4f} to {self.val_loss:.4f}"
            return Verdict.STOPPED_EARLY, (
                f"Its sweep stopped it after step {self.step} of {self.steps}: {course}{self.loss_unit}, "
                "and other trials were better at the same step."
            )
        losses = f"from {self.initial_val_loss:.4f} to {self.val_loss:.4f}{self.loss_unit} in {self.steps} steps"
        if self.val_loss < self.initial_val_loss:
            return Verdict.CONVERGED, f"The {self.loss_name} went {losses}."
        return Verdict.DIVERGED, f"The {self.loss_name} did not fall: it went {losses}."

    def state(self) -> dict[str, Any]:
        """Return the progress as tensors and plain values, for a checkpoint."""
        series = {name: torch.tensor(getattr(self, name), dtype=torch.float64) for name in _SERIES}
        return {
            "step": self.step,
            "initial_val_loss": self.initial_val_loss,
            "val_loss": self.val_loss,
            "fault": self.fault,
            "lowest_val_loss": self.lowest_val_loss,
            "warmup_steps": self.warmup_steps,
            "warmup_seconds": self.warmup_seconds,
            "micro_batch_sequences": self.micro_batch_sequences,
            "memory": None if self.memory is None else self.memory.model_dump(),
            **series,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state()` gave."""
        for name, value in state.items():
            setattr(self, name, array("d", value.tolist()) if name in _SERIES else value)
        if state["memory"] is not None:
            self.memory = MemoryBreakdown.model_validate(state["memory"])
