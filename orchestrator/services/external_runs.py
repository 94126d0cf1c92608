"""`ExternalRuns`: what loops outside of the bench told, kept and judged."""

from collections.abc import Collection

from orchestrator.analysis.benchmark_rules import ExternalTargetTestChoice, TargetTest, external_target_test
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
        """Remove a run for good; whoever sends its spool again brings it back."""
        return external_runs.delete_run(self._database, run_id)

    def delete_experiment(self, experiment_id: str) -> ExternalExperiment:
        """Remove an experiment and its runs for good."""
        return external_runs.delete_experiment(self._database, experiment_id)

    def change_labels(self, experiment_id: str, change: LabelChange) -> ExternalExperiment:
        """Add labels and take some away; raises `ConflictError` where they would be too many."""
        return external_runs.change_labels(self._database, experiment_id, change)

    def experiments(self, *, limit: int | None = None, labels: Collection[str] = ()) -> tuple[ExternalExperiment, ...]:
        """Those that have all of these labels, the newest first."""
        with self._database.reading() as connection:
            return external_runs.experiments(connection, limit=limit, labels=labels)

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

    def series(self, run_id: str, metric: str | None = None) -> ExternalSeries:
        """All that a run told, or one metric; raises `DamagedError` where it cannot be read."""
        with self._database.reading() as connection:
            return external_runs.series(connection, run_id, metric)

    def judge(self, experiment_id: str, choice: JudgementChoice) -> ExternalJudgement:
        """The verdicts on the candidates of an experiment; raises `ConflictError` where it has nothing to judge, or
        where a choice of metric, baseline or workload is to be made first."""
        return judge(*self._read(experiment_id), choice)

    def target_test(self, experiment_id: str, choice: ExternalTargetTestChoice) -> TargetTest:
        """Whose mean loss is shown to be below a target, by the rule of modded-nanogpt's track 3; raises as `judge`."""
        experiment, runs = self._read(experiment_id)
        judged = judge(experiment, runs, JudgementChoice(metric=choice.metric, workload=choice.workload))
        return external_target_test(judged, runs, choice)

    def _read(self, experiment_id: str) -> tuple[ExternalExperiment, tuple[ExternalRun, ...]]:
        """An experiment and its runs, of one moment."""
        with self._database.reading() as connection:
            experiment = external_runs.experiment(connection, experiment_id)
            return experiment, external_runs.runs(connection, experiment.id)
