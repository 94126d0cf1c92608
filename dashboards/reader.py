"""What pages read: the service's answers, put together once for each version of an experiment.

Pages of one experiment are asked for again with every change and by every viewer; the store is asked once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dashboards.palette import Style, styles
from dashboards.series import Series, series
from orchestrator.jobs import TERMINAL
from orchestrator.records import Comparison, ExperimentRecord, RunRecord
from orchestrator.service import Bench

PAGE = 500
"""Runs asked for at once."""


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
    """Reads snapshots and series; keeps the newest ones."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._snapshot = lru_cache(maxsize=64)(self._read_snapshot)
        self._finished_series = lru_cache(maxsize=1024)(self._read_series)

    def snapshot(self, experiment_id: str) -> Snapshot:
        """The experiment as it is now; raises `NotFoundError`."""
        return self._snapshot(experiment_id, self.bench.experiment_version(experiment_id))

    def series(self, run: RunRecord) -> Series:
        """The run's points as columns; those of an ended run never change again and are kept."""
        if run.status in TERMINAL:
            return self._finished_series(run.id, True)
        return self._read_series(run.id, False)

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

    def _read_series(self, run_id: str, ended: bool) -> Series:
        return series(self.bench.points(run_id), ended=ended)
