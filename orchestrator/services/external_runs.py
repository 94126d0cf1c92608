"""`ExternalRuns`: what loops outside of the bench told, kept and judged."""

from collections.abc import Collection

from orchestrator.analysis.external_runs import judge
from orchestrator.annotations import LabelChange
from orchestrator.external_runs import (
    ExternalExperiment,
    ExternalJudgement,
    ExternalRun,
    ExternalSeries,
    JudgementChoice,
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

    def __init__(self, database: Database, *, most_runs: int) -> None:
        """At most so many runs are kept."""
        self._database = database
        self._most_runs = most_runs

    def append(self, run_id: str, batch: LinesBatch, *, by: str | None = None) -> LinesReceipt:
        """Keep what is new of the lines of a spool; raises `ConflictError` where the run is another one's, or there is
        no room."""
        return external_runs.append(self._database, run_id, batch, by=by, most_runs=self._most_runs)

    def delete_run(self, run_id: str) -> ExternalRun:
        """Remove a run for good, and its experiment with its last run; whoever sends its spool again brings it back."""
        return external_runs.delete_run(self._database, run_id)

    def delete_experiment(self, experiment_id: str) -> ExternalExperiment:
        """Remove an experiment and its runs for good."""
        return external_runs.delete_experiment(self._database, experiment_id)

    def change_labels(self, experiment_id: str, change: LabelChange) -> ExternalExperiment:
        """Add labels and take some away; raises `ConflictError` where they would be too many."""
        return external_runs.change_labels(self._database, experiment_id, change)

    def experiments(
        self, *, limit: int = 50, before: str | None = None, labels: Collection[str] = ()
    ) -> tuple[ExternalExperiment, ...]:
        """A page of those that have all of these labels, the newest first; `before` is the last one of the page before
        it."""
        with self._database.reading() as connection:
            return external_runs.experiments(connection, limit=limit, before=before, labels=labels)

    def experiment(self, experiment_id: str) -> ExternalExperiment:
        """One experiment."""
        with self._database.reading() as connection:
            return external_runs.experiment(connection, experiment_id)

    def runs(
        self, experiment_id: str, *, limit: int | None = None, after: str | None = None
    ) -> tuple[ExternalRun, ...]:
        """The runs of an experiment, or a page of them, the first that came first; `after` is the last one of the page
        before it."""
        with self._database.reading() as connection:
            return external_runs.runs(connection, experiment_id, limit=limit, after=after)

    def run(self, run_id: str) -> ExternalRun:
        """One run."""
        with self._database.reading() as connection:
            return external_runs.run(connection, run_id)

    def series(self, run_id: str, metrics: Collection[str] = (), *, most_values: int | None = None) -> ExternalSeries:
        """All that a run told, or these metrics; raises `DamagedError` where it cannot be read, and `ConflictError`
        where there is more of it than `most_values`."""
        with self._database.reading() as connection:
            return external_runs.series(connection, run_id, metrics, most_values=most_values)

    def judge(self, experiment_id: str, choice: JudgementChoice) -> ExternalJudgement:
        """The verdicts on the candidates of an experiment; raises `ConflictError` where it has nothing to judge, or
        where a choice of metric, baseline or workload is to be made first."""
        return judge(*self._read(experiment_id), choice)

    def _read(self, experiment_id: str) -> tuple[ExternalExperiment, tuple[ExternalRun, ...]]:
        """An experiment and its runs, of one moment."""
        with self._database.reading() as connection:
            experiment = external_runs.experiment(connection, experiment_id)
            return experiment, external_runs.runs(connection, experiment.id)
