"""The port between a training and whoever listens: points while it runs, one result at its end.

Reporter ◄── MemoryReporter  keeps everything: tests, notebooks
         ◄── FileReporter    a folder: runs without a service
         ◄── HttpReporter    the service (worker/http_reporter.py)
         ◄── SilentReporter  nobody: the processes of a crew that do not lead
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final, Protocol, TypeVar

from pydantic import ValidationError

from worker.protocol import CheckpointNotice, Command, Failure, Stopped
from worker.record import Observation, Point, Record, Result


class Reporter(Protocol):
    """Takes what a run reports. Calls come from one thread, and none waits for a network."""

    def begin(self, after_step: int | None) -> None:
        """Training begins: from scratch (None) or after a checkpoint; points of earlier attempts beyond it are void."""

    def command(self) -> Command:
        """What the run should do now; raises `LeaseLostError` when it should not exist any more."""

    def point(self, point: Point) -> None:
        """Take a point; steps rise by one."""

    def observe(self, observation: Observation) -> None:
        """Take what a probe saw at a step, before that step's point."""

    def persist(self) -> None:
        """Return when every point so far would survive the death of this process."""

    def checkpoint(self, notice: CheckpointNotice) -> None:
        """Take note of a complete checkpoint."""

    def note(self, text: str) -> None:
        """Take what people should know of this attempt, in a sentence."""

    def finish(self, result: Result) -> None:
        """Deliver the result, after all points. Unlike the others this may wait for a network."""

    def stopped(self, stopped: Stopped) -> None:
        """Deliver that a command was obeyed; may wait like `finish`."""

    def fail(self, failure: Failure) -> None:
        """Deliver that the run broke down; may wait like `finish`."""


Reported = TypeVar("Reported", Point, Observation)


def still_valid(reported: list[Reported], after_step: int | None) -> list[Reported]:
    """What earlier attempts reported that the attempt going on after that step does not report again."""
    return [one for one in reported if after_step is not None and one.step <= after_step]


class MemoryReporter:
    """Keeps everything that it is told, in plain lists."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.observations: list[Observation] = []
        self.checkpoints: list[CheckpointNotice] = []
        self.notes: list[str] = []
        self.result: Result | None = None
        self.ending: Stopped | Failure | None = None
        self.next_command = Command.CONTINUE
        """Set it to have the run stop at its next step."""

    def begin(self, after_step: int | None) -> None:
        """Forget the points that are void."""
        self.points = still_valid(self.points, after_step)
        self.observations = still_valid(self.observations, after_step)

    def command(self) -> Command:
        """The command that was set last."""
        return self.next_command

    def point(self, point: Point) -> None:
        """Keep a point."""
        self.points.append(point)

    def observe(self, observation: Observation) -> None:
        """Keep an observation."""
        self.observations.append(observation)

    def persist(self) -> None:
        """Do nothing: memory does not outlive its process."""

    def checkpoint(self, notice: CheckpointNotice) -> None:
        """Keep a notice."""
        self.checkpoints.append(notice)

    def note(self, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)

    def finish(self, result: Result) -> None:
        """Keep the result."""
        self.result = result

    def stopped(self, stopped: Stopped) -> None:
        """Keep the stop."""
        self.ending = stopped

    def fail(self, failure: Failure) -> None:
        """Keep the failure."""
        self.ending = failure


class SilentReporter:
    """Tells nobody anything: the first process of a crew reports for all."""

    def begin(self, after_step: int | None) -> None:
        """Nothing."""

    def command(self) -> Command:
        """The first process hears the commands, and says what all do."""
        return Command.CONTINUE

    def point(self, point: Point) -> None:
        """Nothing."""

    def observe(self, observation: Observation) -> None:
        """Nothing."""

    def persist(self) -> None:
        """Nothing."""

    def checkpoint(self, notice: CheckpointNotice) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def finish(self, result: Result) -> None:
        """Nothing."""

    def stopped(self, stopped: Stopped) -> None:
        """Nothing."""

    def fail(self, failure: Failure) -> None:
        """Nothing."""


POINTS_NAME: Final = "points.jsonl"
OBSERVATIONS_NAME: Final = "observations.jsonl"
RESULT_NAME: Final = "result.json"
ENDING_NAME: Final = "ending.json"


class FileReporter:
    """Writes `points.jsonl` (a point a line), `observations.jsonl` where there are probes, and at the end `result.json`
    or, where there is no result, `ending.json`."""

    def __init__(self, folder: Path) -> None:
        """Report into `folder`, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files: dict[str, IO[str]] = {}

    def begin(self, after_step: int | None) -> None:
        """Rewrite the points of earlier attempts without the void ones, and drop what said how they ended."""
        self._close()
        for name in (RESULT_NAME, ENDING_NAME):
            (self.folder / name).unlink(missing_ok=True)
        _write_lines(self.folder / POINTS_NAME, still_valid(read_points(self.folder), after_step))
        if (self.folder / OBSERVATIONS_NAME).exists():
            _write_lines(self.folder / OBSERVATIONS_NAME, still_valid(read_observations(self.folder), after_step))

    def command(self) -> Command:
        """Nobody commands a run without a service."""
        return Command.CONTINUE

    def point(self, point: Point) -> None:
        """Append a line."""
        self._append(POINTS_NAME, point)

    def observe(self, observation: Observation) -> None:
        """Append a line to the observations."""
        self._append(OBSERVATIONS_NAME, observation)

    def persist(self) -> None:
        """Hand all lines to the system, and the files with them: this may be the last call."""
        self._close()

    def checkpoint(self, notice: CheckpointNotice) -> None:
        """The checkpoint folder tells it already."""

    def note(self, text: str) -> None:
        """The log tells it already."""

    def finish(self, result: Result) -> None:
        """Write `result.json`."""
        self._end(RESULT_NAME, result.model_dump_json(indent=2))

    def stopped(self, stopped: Stopped) -> None:
        """Write `ending.json`."""
        self._end(ENDING_NAME, stopped.model_dump_json(indent=2))

    def fail(self, failure: Failure) -> None:
        """Write `ending.json`."""
        self._end(ENDING_NAME, failure.model_dump_json(indent=2))

    def _end(self, name: str, text: str) -> None:
        self._close()
        _write(self.folder / name, text + "\n")

    def _append(self, name: str, record: Record) -> None:
        if name not in self._files:
            self._files[name] = (self.folder / name).open("a")
        self._files[name].write(f"{record.model_dump_json()}\n")

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}


def read_points(folder: Path) -> list[Point]:
    """The points in a `FileReporter`'s folder; a last line that a kill cut short is left out."""
    return _read_lines(folder / POINTS_NAME, Point)


def read_observations(folder: Path) -> list[Observation]:
    """The observations in a `FileReporter`'s folder, alike; none where there were no probes."""
    return _read_lines(folder / OBSERVATIONS_NAME, Observation)


def _read_lines(path: Path, kind: type[Reported]) -> list[Reported]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError:
            if number < len(lines):
                raise
    return found


def _write_lines(path: Path, records: Iterable[Record]) -> None:
    _write(path, "".join(f"{record.model_dump_json()}\n" for record in records))


def _write(path: Path, text: str) -> None:
    """Replace the file at once: a reader sees the old text or the new one."""
    unfinished = path.with_suffix(path.suffix + ".unfinished")
    unfinished.write_text(text)
    os.replace(unfinished, path)
