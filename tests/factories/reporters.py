"""A reporter that stops a run, and what of its points does not depend on the clock."""

import os
import signal
from collections.abc import Iterable

from worker.records.protocol import Command
from worker.records.result import Point
from worker.reporting.reporter import MemoryReporter


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


def losses(points: Iterable[Point]) -> list[tuple[int, float | None, float | None, float | None]]:
    """Step, training loss, validation loss and norm of the gradient of each point."""
    return [(point.step, point.train_loss, point.val_loss, point.grad_norm) for point in points]
