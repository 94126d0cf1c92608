"""`Analysis`: what experiments say: leaderboards, cells, what a sweep found, profiles, scaling laws."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestrator.analysis import comparison
from orchestrator.analysis.cells import cell_records, comparisons, select_cell
from orchestrator.analysis.comparison import ValidationCurve
from orchestrator.analysis.laws.fit import FitError, fit_experiments
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.analysis.laws.targets import target
from orchestrator.analysis.profiles import ProfileReport, performance_profiles
from orchestrator.columns import Columns
from orchestrator.errors import ConflictError
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import CellRecord, Comparison, ExperimentRecord, ExperimentWithRuns, RunRecord
from orchestrator.store import reads, series
from orchestrator.store.database import Database
from orchestrator.sweeps import report
from orchestrator.sweeps.records import SweepReport

MOST_EXPERIMENTS = 64
"""The most experiments of one question: each is read with all of its runs."""
NO_CURVE = ValidationCurve(steps=(), losses=())


def validation_curve(columns: Columns) -> ValidationCurve:
    """Return the finite validation losses of a run."""
    finite = columns.rows(np.isfinite(columns.values["val_loss"]))
    return ValidationCurve(steps=tuple(finite.step.tolist()), losses=tuple(finite.values["val_loss"].tolist()))


class Analysis:
    """Answers from results, those of a database or of a bundle. Thread-safe where their source is.

    Every method may raise what the source raises, and `NotFoundError` if an experiment does not exist.
    """

    def __init__(
        self,
        read: Callable[[str], tuple[ExperimentRecord, Sequence[RunRecord]]],
        curves_of: Callable[[Sequence[str]], Mapping[str, ValidationCurve]],
    ) -> None:
        """`read` gives an experiment with all of its runs, of one moment; `curves_of` ended runs' validation losses."""
        self._read, self._curves_of = read, curves_of

    def compare(self, experiment_id: str, cell: str | None = None) -> Comparison:
        """Return the leaderboard of an experiment, from all of its runs; of a scaling experiment that of one cell, by
        its key, or of its largest model."""
        return self.judge(*select_cell(*self._read(experiment_id), cell))

    def judge(self, experiment: ExperimentRecord, runs: Sequence[RunRecord], baseline: str | None = None) -> Comparison:
        """Return the leaderboard of a comparison, or of a cell, from all of its runs. `baseline`: compared with that
        candidate instead of the planned one, with intervals that allow for the choice."""
        curves = self._curves_of(comparison.compared_runs(experiment, runs))
        return comparison.compare(experiment, runs, curves, baseline=baseline)

    def cells(self, experiment_id: str) -> tuple[CellRecord, ...]:
        """Return every size and budget of a scaling experiment with its leaderboard, the smallest first, times to the
        baseline's loss left out; raises `ConflictError` for an experiment of another kind."""
        return cell_records(*self._read(experiment_id))

    def sweep(self, experiment_id: str, *, importance: bool = True) -> SweepReport:
        """Return the report of a sweep so far; raises `ConflictError` if the experiment is none."""
        return report.report(*self._read(experiment_id), importance=importance)

    def sweep_comparison(self, experiment_id: str, seed_count: int, *, best: int = 1) -> ComparisonSpec:
        """Return the comparison of the `best` trials of each of a sweep's optimizers over fresh seeds; raises
        `ConflictError` before the sweep has ended, and where there are not so many."""
        experiment, runs = self._read(experiment_id)
        sweep_report = report.report(experiment, runs)
        return report.comparison_of_the_best(sweep_report, report.sweep_spec(experiment), seed_count, best=best)

    def comparison_at_judged_settings(self, experiment_id: str) -> ComparisonSpec:
        """Return a comparison with each candidate at the setting that it is judged at. Raises `ConflictError` if the
        experiment is not a comparison, has not ended, or has a candidate without a loss."""
        experiment, runs = self._read(experiment_id)
        if not isinstance(experiment.spec, ComparisonSpec):
            raise ConflictError(
                f"experiment {experiment_id} is a {experiment.spec.title}: only a comparison has rates to keep"
            )
        answer = self.judge(experiment, runs)
        if not answer.complete:
            raise ConflictError(f"experiment {experiment_id} has not ended: its rates may still change")
        best = {row.candidate: row.best() for row in answer.rows}
        if lost := [row.title for row in answer.rows if row.val_loss is None]:
            raise ConflictError(f"experiment {experiment_id} has no rate to keep for {', '.join(lost)}")
        settings = {name: {**rate.setting, "lr": rate.lr} for name, rate in best.items() if rate is not None}
        try:
            return experiment.spec.fix_settings(settings)
        except ValueError as error:
            raise ConflictError(
                f"the rates of experiment {experiment_id} cannot be kept: {error}; clone all of it"
            ) from error

    def profile(self, experiment_ids: Sequence[str]) -> ProfileReport:
        """Return the performance profiles of several comparisons' candidates over all of their workloads."""
        return performance_profiles(
            [
                (experiment, runs, self._curves_of(comparison.compared_runs(experiment, runs)))
                for experiment, runs in self._comparisons(experiment_ids)
            ]
        )

    def fit(
        self,
        experiment_ids: Sequence[str],
        *,
        form: FormName | None = None,
        predict: Sequence[str] = (),
    ) -> FitReport:
        """Return the scaling laws of the candidates over these experiments; raises `FitError` if they share no
        candidate. `predict`: models of the catalog, or numbers of parameters."""
        measured = self._comparisons(experiment_ids)
        tokenizer = measured[0][0].spec.workload.data.tokenizer
        return fit_experiments(measured, form=form, predict=[target(size, tokenizer) for size in predict])

    def law(self, experiment_ids: Sequence[str], form: FormName | None = None) -> FitReport | None:
        """Return the scaling laws of `fit`; None if there can be none."""
        try:
            return self.fit(experiment_ids, form=form)
        except FitError:
            return None

    def _comparisons(self, experiment_ids: Sequence[str]) -> list[ExperimentWithRuns]:
        """Return the comparisons of these experiments, each once: of a scaling experiment its cells."""
        unique = dict.fromkeys(experiment_ids)
        return [part for experiment_id in unique for part in comparisons(*self._read(experiment_id))]


class StoredExperiments:
    """The experiments of a database. Thread-safe; every method may raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, experiment_id: str) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
        """Return an experiment and all of its runs, of one moment."""
        with self._database.reading() as connection:
            runs = reads.run_page(connection, experiment_id=experiment_id)
            return reads.experiment(connection, experiment_id), runs

    def records(self, experiment_ids: Sequence[str]) -> tuple[ExperimentRecord, ...]:
        """Return experiments without their runs, in the order of these ids; deleted and damaged ones are left out."""
        with self._database.reading() as connection:
            records = reads.several_experiments(connection, experiment_ids)
        return tuple(record for record in records if isinstance(record, ExperimentRecord))

    def curves(self, run_ids: Sequence[str]) -> dict[str, ValidationCurve]:
        """Return the validation losses of ended runs."""
        with self._database.reading() as connection:
            read = series.read_many(connection, run_ids, ("val_loss",))
            return dict.fromkeys(run_ids, NO_CURVE) | {run_id: validation_curve(columns) for run_id, columns in read}
