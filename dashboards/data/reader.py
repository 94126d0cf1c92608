"""The data of pages: the service's answers, assembled once for each version of an experiment.

Pages of one experiment are asked for again with every change and by every viewer; the store is asked once. A law
changes only when a run ends, and takes about a second to fit: it is kept for each state of its experiments.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from dashboards.data.any_run import AnyRun
from dashboards.data.series import (
    CURVE_FIELDS,
    OWN_FIELDS,
    Series,
    evenly_spaced_rows,
    external_columns,
    external_series,
    series,
    spiky_rows,
)
from dashboards.palette import Style, styles
from dashboards.text.words import LeaderboardLine, leaderboard
from orchestrator.analysis.cells import select_cell
from orchestrator.analysis.comparison import SECONDS_PER_HOUR
from orchestrator.analysis.laws.records import FitReport
from orchestrator.analysis.laws.targets import larger_presets
from orchestrator.columns import FIELDS, Columns, columns_of
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.external_runs import USUAL_METRICS, ExternalExperiment
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import (
    AnyExperiment,
    Comparison,
    DamagedExperiment,
    ExperimentRecord,
    ExperimentWithRuns,
    RunRecord,
)
from orchestrator.run_table.fields import EXTERNAL
from orchestrator.services.composition import Services
from orchestrator.sweeps.records import SweepFinding, SweepReport

MAX_SNAPSHOTS = 8
"""The most snapshots: one of 1,000 runs takes 8 MB; only the newest of an experiment is kept."""
MAX_BRIEFS = 500
"""The most lines of the first page: some kilobytes for each candidate."""
MAX_LAWS = 16
MAX_SERIES = 1_000
"""The most series of ended runs, thinned for figures: some 100 kB each."""

Key = TypeVar("Key")
Kept = TypeVar("Kept")
LawKey = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An experiment at one version."""

    version: int
    experiment: ExperimentRecord
    answer: Comparison | SweepReport
    runs: tuple[RunRecord, ...]
    styles: dict[str, Style]
    """The styles by candidate name."""
    titles: dict[str, str]
    """The titles by candidate name."""
    device_hours: float
    """The device-hours of all runs of the experiment, those of other cells too."""

    @property
    def comparison(self) -> Comparison:
        """Return the leaderboard. Raises `ConflictError` for a sweep."""
        if isinstance(self.answer, SweepReport):
            raise ConflictError(f"experiment {self.experiment.id} is a sweep and has no leaderboard")
        return self.answer

    @property
    def sweep(self) -> SweepReport:
        """Return the sweep's report. Raises `ConflictError` for any other experiment."""
        if isinstance(self.answer, Comparison):
            raise ConflictError(f"experiment {self.experiment.id} is no sweep")
        return self.answer


@dataclass(frozen=True, kw_only=True)
class Brief:
    """An experiment in a line: what a list of many shows of it."""

    experiment: AnyExperiment | ExternalExperiment
    rows: tuple[LeaderboardLine, ...] = ()
    """Candidates of a comparison with a loss, best first."""
    trials: tuple[tuple[SweepFinding, Style], ...] = ()
    """Candidates of a sweep with a best trial, best first."""
    lossless: tuple[str, ...] = ()
    """Titles of the other candidates."""
    device_hours: float
    """The device-hours of all runs."""


class Reader:
    """Reads snapshots, laws and series; keeps the newest ones, within bounds. Thread-safe."""

    def __init__(self, services: Services) -> None:
        self.experiments, self.runs, self.analysis = services.experiments, services.runs, services.analysis
        self.external_runs = services.external_runs
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._briefs: OrderedDict[str, tuple[int, Brief]] = OrderedDict()
        self._laws: OrderedDict[LawKey, tuple[object, FitReport]] = OrderedDict()
        self._finished: OrderedDict[str, Series] = OrderedDict()
        self._lock = Lock()
        """Pages are rendered by several threads."""

    def snapshot(self, experiment_id: str, cell: str = "", *, baseline: str = "") -> Snapshot:
        """Return the experiment as it is now, or a cell of it; of a scaling experiment without a cell its largest
        model's. `baseline`: held against that candidate instead of the planned one, where it is one. Raises
        `NotFoundError`."""
        version = self.experiments.version(experiment_id)
        key = f"{experiment_id} {cell} {baseline}"
        with self._lock:
            cached_snapshot = self._snapshots.get(key)
        if cached_snapshot is not None and cached_snapshot.version >= version:
            return cached_snapshot
        fresh = self._read_snapshot(experiment_id, version, cell or None, baseline=baseline)
        self._keep(self._snapshots, key, fresh, MAX_SNAPSHOTS)
        return fresh

    def brief(self, experiment: AnyExperiment | ExternalExperiment) -> Brief:
        """Return the experiment in a line; its rows are read once for each version. Of a damaged one there are none,
        and of one that the bench did not run: its page judges it."""
        if isinstance(experiment, ExternalExperiment):
            return Brief(experiment=experiment, device_hours=0.0)
        if isinstance(experiment, DamagedExperiment):
            runs = self.runs.read_all(experiment.id)
            hours = sum(run.device_seconds for run in runs) / SECONDS_PER_HOUR
            return Brief(experiment=experiment, device_hours=hours)
        version = self.experiments.version(experiment.id)
        with self._lock:
            cached_brief = self._briefs.get(experiment.id)
        if cached_brief is not None and cached_brief[0] >= version:
            return replace(cached_brief[1], experiment=experiment)
        brief = self._sweep_brief(experiment) if experiment.spec.answer is AnswerKind.FINDINGS else None
        if brief is None:
            snapshot = self.snapshot(experiment.id)
            version, lines = snapshot.version, leaderboard(snapshot.comparison, snapshot.styles)
            brief = Brief(
                experiment=experiment,
                rows=tuple(line for line in lines if line.rank is not None),
                lossless=tuple(line.row.title for line in lines if line.rank is None),
                device_hours=snapshot.device_hours,
            )
        self._keep(self._briefs, experiment.id, (version, brief), MAX_BRIEFS)
        return brief

    def _sweep_brief(self, experiment: ExperimentRecord) -> Brief:
        """Return a sweep in a line, without the importance of hyperparameters, which takes a second."""
        report, looks = self.analysis.sweep(experiment.id, importance=False), candidate_styles(experiment)
        return Brief(
            experiment=experiment,
            trials=tuple((finding, looks[finding.candidate]) for finding in report.findings if finding.best),
            lossless=tuple(finding.title for finding in report.findings if not finding.best),
            device_hours=report.device_hours,
        )

    def law(self, experiments: Sequence[ExperimentRecord], predict: Sequence[str] = ()) -> FitReport:
        """Return the laws over these experiments, with predictions for those sizes; without any, for `default_targets`.
        Raises `FitError` if there can be none."""
        ids = [experiment.id for experiment in experiments]
        sizes = tuple(predict) or default_targets(experiments)
        key = tuple(ids), sizes
        stamp = tuple((experiment.counts.total, experiment.counts.ended()) for experiment in experiments)
        with self._lock:
            cached_fit = self._laws.get(key)
        if cached_fit is not None and cached_fit[0] == stamp:
            return cached_fit[1]
        report = self.analysis.fit(ids, predict=sizes)
        self._keep(self._laws, key, (stamp, report), MAX_LAWS)
        return report

    def series(self, runs: Sequence[RunRecord]) -> tuple[Series, ...]:
        """Return each run's rows for a figure of several; those of an ended attempt never change again and are kept."""
        with self._lock:
            rows = {run.id: kept for run in runs if (kept := self._finished.get(_ended_attempt(run))) is not None}
        unread = {run.id: run for run in runs if run.id not in rows}
        for run_id, columns in self.runs.many_series(tuple(unread), CURVE_FIELDS):
            rows[run_id] = _plotted_rows(unread[run_id], columns)
        for run_id, run in unread.items():
            rows.setdefault(run_id, _plotted_rows(run, columns_of(())))
            if attempt := _ended_attempt(run):
                self._keep(self._finished, attempt, rows[run_id], MAX_SERIES)
        return tuple(rows[run.id] for run in runs)

    def run(self, key: str) -> AnyRun:
        """Return the run of any source with this id, and its experiment's name. Raises `NotFoundError`."""
        try:
            run = self.runs.get(key)
        except NotFoundError:
            with suppress(NotFoundError):
                external_run = self.external_runs.run(key.removeprefix(EXTERNAL))
                return AnyRun(record=external_run, experiment=external_run.experiment)
            raise
        return AnyRun(record=run, experiment=self.experiments.get_any(run.experiment_id).name)

    def own_series(self, run: RunRecord) -> Series:
        """Return the run's rows for the figure of its own page."""
        columns, ended = self.runs.series(run.id, OWN_FIELDS), run.status in TERMINAL
        return spiky_rows(series(columns, ended=ended, device_seconds=run.device_seconds), columns)

    def many_series(self, runs: Sequence[AnyRun], fields: Sequence[str]) -> Iterator[tuple[AnyRun, Columns, Series]]:
        """Yield the points of each run that has any: these fields, and all rows for figures."""
        measured = {run.record.id: run for run in runs if run.measured}
        own_fields = [name for name in fields if name in FIELDS]
        for run_id, columns in self.runs.many_series(list(measured), own_fields) if measured else ():
            run = measured[run_id]
            seconds = run.measured.device_seconds if run.measured else 0.0
            yield run, columns, series(columns, ended=run.ended, device_seconds=seconds)
        for run in runs:
            if run.external:
                logged_series = self.external_runs.series(run.record.id, (*fields, *USUAL_METRICS))
                columns = external_columns(logged_series, fields)
                yield run, columns, external_series(columns, ended=run.ended)

    def _keep(self, shelf: OrderedDict[Key, Kept], key: Key, value: Kept, limit: int) -> None:
        """Keep a value, and of the others only the `limit` newest."""
        with self._lock:
            shelf.pop(key, None)
            shelf[key] = value
            while len(shelf) > max(limit, 1):
                shelf.popitem(last=False)

    def _read_snapshot(
        self,
        experiment_id: str,
        version: int,
        cell: str | None = None,
        *,
        baseline: str = "",
    ) -> Snapshot:
        whole: ExperimentWithRuns = self.experiments.get(experiment_id), tuple(self.runs.read_all(experiment_id))
        experiment, runs = whole
        answer: Comparison | SweepReport
        if experiment.spec.answer is AnswerKind.FINDINGS:
            answer = self.analysis.sweep(experiment_id)
        else:
            experiment, runs = select_cell(*whole, cell)
            chosen = baseline if any(candidate.name() == baseline for candidate in experiment.spec.candidates) else None
            answer = self.analysis.compare(experiment_id, cell, baseline=chosen, measured=whole)
        return Snapshot(
            version=version,
            experiment=experiment,
            answer=answer,
            runs=tuple(runs),
            styles=candidate_styles(experiment),
            device_hours=sum(run.device_seconds for run in whole[1]) / SECONDS_PER_HOUR,
            titles={candidate.name(): candidate.title() for candidate in experiment.spec.candidates},
        )


def candidate_styles(experiment: ExperimentRecord) -> dict[str, Style]:
    """Return the styles of an experiment's candidates, by name."""
    return styles((candidate.name(), candidate.optimizer) for candidate in experiment.spec.candidates)


def default_targets(experiments: Sequence[ExperimentRecord]) -> tuple[str, ...]:
    """Return the next larger models of the catalog: what a page predicts unless it is asked for something else."""
    models = {model for experiment in experiments for model in experiment.spec.models()}
    return larger_presets(models, experiments[0].spec.workload.data.tokenizer)


def _ended_attempt(run: RunRecord) -> str:
    """Return the name of an attempt that has ended, empty for a live one: a retried run is trained anew."""
    return f"{run.id} {run.attempt}" if run.status in TERMINAL else ""


def _plotted_rows(run: RunRecord, columns: Columns) -> Series:
    whole = series(columns, ended=run.status in TERMINAL, device_seconds=run.device_seconds)
    return evenly_spaced_rows(whole, run.steps_total)
