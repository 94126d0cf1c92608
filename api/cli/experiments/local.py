"""A run's reports on this terminal: files as every local run writes them, and a line of progress."""

import sys
import time
from pathlib import Path

from dashboards.text import formats
from worker.records.result import Point
from worker.reporting.reporter import FileReporter

LINE_SECONDS = 5.0
"""Without a terminal: at most one line in this time."""
TERMINAL_SECONDS = 0.2


class ProgressReporter(FileReporter):
    """A `FileReporter` that also says how far the training is, on standard error."""

    def __init__(self, folder: Path, *, steps: int, quiet: bool) -> None:
        """Report into `folder` a training of `steps`; `quiet` prints nothing."""
        super().__init__(folder)
        self._steps = steps
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._told_at = -LINE_SECONDS
        self._val_loss: float | None = None

    def point(self, point: Point) -> None:
        """Write the point; tell of it where it is time."""
        super().point(point)
        self._val_loss = point.val_loss if point.val_loss is not None else self._val_loss
        pause_seconds = TERMINAL_SECONDS if self._live else LINE_SECONDS
        last = point.step >= self._steps
        if self._quiet or (time.monotonic() - self._told_at < pause_seconds and not last):
            return
        self._told_at = time.monotonic()
        end = "\n" if last or not self._live else ""
        print(("\r\x1b[K" if self._live else "") + self._line(point), end=end, file=sys.stderr, flush=True)

    def _line(self, point: Point) -> str:
        parts = [f"step {point.step}/{self._steps}", f"train loss {formats.loss(point.train_loss)}"]
        parts.append(f"val loss {formats.loss(self._val_loss)}")
        if point.step_seconds is not None:
            parts.append(f"{formats.seconds(point.step_seconds)} a step")
        return ", ".join(parts)
