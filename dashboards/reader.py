"""What pages read: the service's answers, put together once for each version of an experiment.

Pages of one experiment are asked for again with every change and by every viewer; the store is asked once.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from dashboards.palette import Style, styles
from dashboards.series import Series, series
from orchestrator.jobs import TERMINAL
from orchestrator.records import Comparison, ExperimentRecord, RunRecord
from orchestrator.service import Bench
from worker.record import Point

PAGE = 500
"""Runs asked for at once."""
MAX_SNAPSHOTS = 8
"""One of 1,000 runs takes 8 MB; of an experiment only the newest is kept."""
MAX_POINTS_KEPT = 2_000_000
"""As columns some 130 MB. Series are bounded by their number and the length of the newest one."""

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One experiment as it was at one version."""

    version: int
    experiment: ExperimentRecord
    comparison: Comparison
    runs: tuple[RunRecord, ...]
    styles: dict[str, Style]
    """By candidate name."""
    titles: dict[str, str]
    """By candidate name."""


class Reader:
    """Reads snapshots and series; keeps the newest ones, within bounds."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._points: OrderedDict[str, tuple[Point, ...]] = OrderedDict()
        self._finished: OrderedDict[str, Series] = OrderedDict()
        self._lock = Lock()
        """Pages are rendered by several threads."""

    def snapshot(self, experiment_id: str) -> Snapshot:
        """The experiment as it is now; raises `NotFoundError`."""
        version = self.bench.experiment_version(experiment_id)
        with self._lock:
            known = self._snapshots.get(experiment_id)
        if known is not None and known.version >= version:
            return known
        fresh = self._read_snapshot(experiment_id, version)
        self._keep(self._snapshots, experiment_id, fresh, MAX_SNAPSHOTS)
        return fresh

    def series(self, run: RunRecord) -> Series:
        """The run's points as columns; those of an ended run never change again and are kept as they are."""
        with self._lock:
            known = self._finished.get(run.id)
        if known is not None:
            return known
        if run.status not in TERMINAL:
            return series(self._live_points(run.id), ended=False)
        finished = series(self.bench.points(run.id), ended=True)
        self._keep(self._finished, run.id, finished, MAX_POINTS_KEPT // max(len(finished.steps), 1))
        with self._lock:
            self._points.pop(run.id, None)
        return finished

    def _live_points(self, run_id: str) -> tuple[Point, ...]:
        """All points so far: those that are known, and what came since. The last known one may have grown."""
        with self._lock:
            known = self._points.get(run_id, ())
        last = known[-1].step if known else 0
        settled = tuple(known[:-1])
        points = settled + self.bench.points(run_id, after_step=last - 1)
        self._keep(self._points, run_id, points, MAX_POINTS_KEPT // max(len(points), 1))
        return points

    def _keep(self, shelf: OrderedDict[str, Kept], key: str, value: Kept, most: int) -> None:
        """Keep a value, and of the others only the `most` newest."""
        with self._lock:
            shelf.pop(key, None)
            shelf[key] = value
            while len(shelf) > max(most, 1):
                shelf.popitem(last=False)

    def _read_snapshot(self, experiment_id: str, version: int) -> Snapshot:
        experiment = self.bench.experiment(experiment_id)
        comparison = self.bench.compare(experiment_id)
        return Snapshot(
            version=version,
            experiment=experiment,
            comparison=comparison,
            runs=tuple(self._runs(experiment_id)),
            styles=styles((one.name(), one.optimizer) for one in experiment.spec.candidates),
            titles={row.candidate: row.title for row in comparison.rows},
        )

    def _runs(self, experiment_id: str) -> Iterator[RunRecord]:
        after: str | None = None
        while page := self.bench.runs(experiment_id=experiment_id, limit=PAGE, after=after):
            yield from page
            after = page[-1].id
