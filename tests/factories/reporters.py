"""Reporters that keep what a run reports, and stop it; and what of its points does not depend on the clock."""

import os
import signal
from collections.abc import Iterable
from typing import Any

from worker.records.protocol import CheckpointNotice, Command, LastWord
from worker.records.result import Observation, Point, Result, TextSamples
from worker.reporting.reporter import Reporter, valid_reports
from worker.run import Folders, run
from worker.spec.run import RunSpec


class MemoryReporter(Reporter):
    """Keeps everything that it is told, in plain lists."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.observations: list[Observation] = []
        self.samples: list[TextSamples] = []
        self.checkpoints: list[CheckpointNotice] = []
        self.notes: list[str] = []
        self.result: Result | None = None
        self.ending: LastWord | None = None
        self.next_command = Command.CONTINUE
        """Set it to have the run stop at its next step."""

    def begin(self, after_step: int | None) -> None:
        self.points = valid_reports(self.points, after_step)
        self.observations = valid_reports(self.observations, after_step)
        self.samples = valid_reports(self.samples, after_step)

    def command(self) -> Command:
        return self.next_command

    def point(self, point: Point) -> None:
        self.points.append(point)

    def observe(self, seen: Observation | TextSamples) -> None:
        self.samples.append(seen) if isinstance(seen, TextSamples) else self.observations.append(seen)

    def checkpoint(self, notice: CheckpointNotice) -> None:
        self.checkpoints.append(notice)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finish(self, word: LastWord) -> None:
        if isinstance(word, Result):
            self.result = word
        else:
            self.ending = word


class StoppingReporter(MemoryReporter):
    """Gives a command, or for None sends SIGTERM, once the point of a step has arrived."""

    def __init__(self, step: int, command: Command | None = Command.PAUSE) -> None:
        super().__init__()
        self.step, self.wanted = step, command

    def point(self, point: Point) -> None:
        super().point(point)
        if point.step != self.step:
            return
        if self.wanted is None:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self.next_command = self.wanted


def reported(spec: RunSpec, folders: Folders, **options: Any) -> tuple[MemoryReporter, Result]:
    """A run from its beginning to its end: all that it told, and its result."""
    reporter = MemoryReporter()
    return reporter, run(spec, reporter, folders, **options)


def losses(points: Iterable[Point]) -> list[tuple[int, float | None, float | None, float | None, float | None]]:
    """Step, training loss, validation loss, norm of the gradient and learning rate of each point."""
    return [(point.step, point.train_loss, point.val_loss, point.grad_norm, point.lr) for point in points]
