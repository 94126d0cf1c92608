"""The phases of a step: data, forward, backward, optimizer, each measured on the device that works.

On a GPU the phases are spans between events on its stream, so that nothing has to wait for a measurement; on a CPU
they are wall-clock time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import torch


class Phase(StrEnum):
    """The parts of a step that are timed apart."""

    DATA = "data"
    """Drawing the batch; the device waits for it."""
    FORWARD = "forward"
    BACKWARD = "backward"
    """Recomputed activations included."""
    OPTIMIZER = "optimizer"
    """Inside `optimizer.step()`."""


def mark(phase: Phase) -> str:
    """Return the phase's name in a profiler's trace."""
    return f"step/{phase}"


class PhaseClock:
    """Starts with the step; phases of one name add up."""

    def __init__(self, device: torch.device) -> None:
        self._started = time.perf_counter()
        self._cuda = device.type == "cuda"
        self._seconds = dict.fromkeys(Phase, 0.0)
        self._spans: list[tuple[Phase, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Time the code inside, and mark it for profilers."""
        with torch.profiler.record_function(mark(phase)):
            if self._cuda and phase is not Phase.DATA:
                start, end = _event(), _event()
                start.record()
                yield
                end.record()
                self._spans.append((phase, start, end))
            else:
                started = time.perf_counter()
                yield
                self._seconds[phase] += time.perf_counter() - started

    def seconds(self) -> dict[str, float]:
        """Return the times up to now, by the names that records have for them; the device must have finished its work.

        `step_seconds` is wall-clock and holds, beyond the phases, clipping and reading the loss.
        """
        whole = time.perf_counter() - self._started
        for phase, start, end in self._spans:
            self._seconds[phase] += start.elapsed_time(end) / 1e3
        self._spans.clear()
        return {"step_seconds": whole, **{f"{phase}_seconds": seconds for phase, seconds in self._seconds.items()}}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch publishes no types for it
