"""Unsent points on disk, one file a batch, so that they outlive the service's absence and the worker's death."""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from worker.protocol import PointsBatch
from worker.record import Observation, Point, Record
from worker.reporter import still_valid

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"a(\d+)-(\d+)\.json")


class Spool:
    """The folder of one run's unsent batches; it writes those of one attempt and inherits those of earlier ones."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt

    def write(self, sequence: int, body: bytes) -> Path:
        """Keep a batch. Written at once or not at all; not synced, since a process that dies leaves the system up."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"a{self._attempt:04d}-{sequence:09d}.json"
        unfinished = path.with_suffix(".unfinished")
        try:
            unfinished.write_bytes(body)
            os.replace(unfinished, path)
        except OSError:
            unfinished.unlink(missing_ok=True)  # on a full disk it would take room that a later one needs
            raise
        return path

    def inherited(self) -> list[Path]:
        """The batches that earlier attempts left, in the order of their sequences; the newest attempt's first.

        There are several attempts' where one was killed while it took over: it left copies, and it counts.
        """
        found = []
        for path in self._folder.glob("a*.json"):
            match = _NAME.fullmatch(path.name)
            if match and int(match[1]) < self._attempt:
                found.append((-int(match[1]), int(match[2]), path))
        return [path for _, _, path in sorted(found)]


def reports(paths: Iterable[Path], after_step: int | None) -> Iterator[Observation | Point]:
    """What still counts in spooled batches, one file in memory at a time; of what stands in several the first."""
    seen = set()
    for path in paths:
        for report in _valid(path, after_step):
            key = report.step, report.probe if isinstance(report, Observation) else None
            if key not in seen:
                seen.add(key)
                yield report


def _valid(path: Path, after_step: int | None) -> list[Observation | Point]:
    """Of one file, each step's observations before its point; nothing, with a warning, where the file is damaged."""
    try:
        batch = _read(path)
    except (OSError, ValidationError) as error:
        logger.warning("passed over the damaged spooled batch %s: %s", path, error)
        return []
    observations, points = (
        still_valid(list(batch.observations), after_step),
        still_valid(list(batch.points), after_step),
    )
    return sorted([*observations, *points], key=lambda report: (report.step, isinstance(report, Point)))


class _Pointwise(Record):
    """A batch as workers spooled it before points became columns."""

    sequence: int
    points: tuple[Point, ...]
    observations: tuple[Observation, ...] = ()


def _read(path: Path) -> PointsBatch | _Pointwise:
    body = path.read_bytes()
    try:
        return PointsBatch.model_validate_json(body)
    except ValidationError:
        try:
            return _Pointwise.model_validate_json(body)
        except ValidationError:
            pass  # it is neither: what is told of it is what the form of today says
        raise
