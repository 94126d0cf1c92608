"""`ExternalRuns`: what loops outside of the bench told, kept and judged."""

from orchestrator.analysis.external_runs import judge
from orchestrator.external_runs import (
    ExternalExperiment,
    ExternalJudgement,
    ExternalRun,
    ExternalSeries,
    LinesBatch,
    LinesReceipt,
)
from orchestrator.store import external_runs
from orchestrator.store.database import Database


class ExternalRuns:
    """The external runs of one database. Thread-safe.

    Every method may raise `StoreError`; an experiment may be named by its id or by its name, and where there is none
    `NotFoundError` is raised.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, run_id: str, batch: LinesBatch, *, by: str | None = None) -> LinesReceipt:
        """Keep what is new of the lines of a spool; raises `ConflictError` where the run is another one's."""
        return external_runs.append(self._database, run_id, batch, by=by)

    def experiments(self, *, limit: int | None = None) -> tuple[ExternalExperiment, ...]:
        """The newest first."""
        with self._database.reading() as connection:
            return external_runs.experiments(connection, limit=limit)

    def experiment(self, experiment_id: str) -> ExternalExperiment:
        """One experiment."""
        with self._database.reading() as connection:
            return external_runs.experiment(connection, experiment_id)

    def runs(self, experiment_id: str) -> tuple[ExternalRun, ...]:
        """All runs of an experiment, the first that came first."""
        with self._database.reading() as connection:
            return external_runs.runs(connection, experiment_id)

    def run(self, run_id: str) -> ExternalRun:
        """One run."""
        with self._database.reading() as connection:
            return external_runs.run(connection, run_id)

    def series(self, run_id: str) -> ExternalSeries:
        """All that a run told; raises `DamagedError` where it cannot be read."""
        with self._database.reading() as connection:
            return external_runs.series(connection, run_id)

    def judge(
        self,
        experiment_id: str,
        *,
        metric: str | None = None,
        baseline: str | None = None,
        workload: str | None = None,
        margin: float | None = None,
    ) -> ExternalJudgement:
        """The verdicts on the candidates of an experiment; raises `ConflictError` where it has nothing to judge, or
        where a choice of metric, baseline or workload is to be made first."""
        with self._database.reading() as connection:
            experiment = external_runs.experiment(connection, experiment_id)
            runs = external_runs.runs(connection, experiment.id)
        return judge(experiment, runs, metric=metric, baseline=baseline, workload=workload, margin=margin)
