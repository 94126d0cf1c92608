"""The data of pages: the service's answers, assembled once for each version of an experiment.

Pages of one experiment are asked for again with every change and by every viewer; the store is asked once. A law
changes only when a run ends, and takes about a second to fit: it is kept for each state of its experiments.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

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
from dashboards.palette import Style, external_styles, styles
from dashboards.text.words import LeaderboardLine, leaderboard
from orchestrator.analysis.cells import select_cell
from orchestrator.analysis.external_runs import judge
from orchestrator.analysis.laws.records import FitReport
from orchestrator.analysis.laws.targets import larger_presets
from orchestrator.columns import FIELDS, Columns, columns_of
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.external_runs import USUAL_METRICS, ExternalExperiment, JudgedCandidate, JudgementChoice
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import (
    SECONDS_PER_HOUR,
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
"""The most snapshots: one of 1,000 runs takes 8 MB."""
MAX_BRIEFS = 500
"""The most lines of the first page: some kilobytes for each candidate."""
MOST_JUDGED = 500
"""The most runs of a logged experiment that the first page judges: some 0.2 s."""
MAX_LAWS = 16
MAX_SERIES = 1_000
"""The most series of ended runs, thinned for figures: some 100 kB each."""


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
            raise ConflictError(f"experiment {self.experiment.id} is not a sweep")
        return self.answer


@dataclass(frozen=True, kw_only=True)
class Brief:
    """An experiment in a line: what a list of many shows of it."""

    experiment: AnyExperiment | ExternalExperiment
    rows: tuple[LeaderboardLine, ...] = ()
    """Candidates of a comparison with a loss, best first."""
    trials: tuple[tuple[SweepFinding, Style], ...] = ()
    """Candidates of a sweep with a best trial, best first."""
    judged: tuple[tuple[JudgedCandidate, Style], ...] = ()
    """Candidates of logged and imported runs, best first."""
    lossless: tuple[str, ...] = ()
    """Titles of the other candidates."""
    device_hours: float
    """The device-hours of all runs."""


class Reader:
    """Reads snapshots, laws and series; keeps the newest ones, within bounds. Thread-safe."""

    def __init__(self, services: Services) -> None:
        self.experiments, self.runs, self.analysis = services.experiments, services.runs, services.analysis
        self.external_runs = services.external_runs
        self._snapshot_at = lru_cache(MAX_SNAPSHOTS)(self._read_snapshot)
        self._brief_at = lru_cache(MAX_BRIEFS)(self._read_brief)
        self._judged_at = lru_cache(MAX_BRIEFS)(self._read_judged)
        # The states are those of the experiments, whose law changes with them.
        self._law_at = lru_cache(MAX_LAWS)(lambda ids, sizes, _states: self.analysis.fit(ids, predict=sizes))
        self._ended: dict[str, Series] = {}

    def snapshot(self, experiment_id: str, cell: str = "", *, baseline: str = "") -> Snapshot:
        """Return the experiment as it is now, or a cell of it; of a scaling experiment without a cell its largest
        model's. `baseline`: compared with that candidate instead of the planned one, where it is one. Raises
        `NotFoundError`."""
        return self._snapshot_at(experiment_id, self.experiments.version(experiment_id), cell, baseline)

    def brief(self, experiment: AnyExperiment | ExternalExperiment) -> Brief:
        """Return the experiment in a line; its rows are read once for each version. A damaged one has none."""
        if isinstance(experiment, ExternalExperiment):
            judged = self._judged_at(experiment.id, experiment.updated_at, experiment.runs)
            return Brief(experiment=experiment, judged=judged, device_hours=0.0)
        if isinstance(experiment, DamagedExperiment):
            runs = self.runs.read_all(experiment.id)
            hours = sum(run.device_seconds for run in runs) / SECONDS_PER_HOUR
            return Brief(experiment=experiment, device_hours=hours)
        brief = self._brief_at(experiment.id, self.experiments.version(experiment.id))
        return replace(brief, experiment=experiment)

    def law(self, experiments: Sequence[ExperimentRecord], predict: Sequence[str] = ()) -> FitReport:
        """Return the laws over these experiments, with predictions for those sizes; without any, for `default_targets`.
        Raises `FitError` if there can be none."""
        ids = tuple(experiment.id for experiment in experiments)
        states = tuple((experiment.counts.total, experiment.counts.ended()) for experiment in experiments)
        return self._law_at(ids, tuple(predict) or default_targets(experiments), states)

    def series(self, runs: Sequence[RunRecord]) -> tuple[Series, ...]:
        """Return each run's rows for a figure of several; those of an ended attempt never change again and are kept."""
        rows = {run.id: kept for run in runs if (kept := self._ended.get(_ended_attempt(run))) is not None}
        unread = {run.id: run for run in runs if run.id not in rows}
        rows |= {run_id: _plotted_rows(run, columns_of(())) for run_id, run in unread.items()}
        for run_id, columns in self.runs.many_series(tuple(unread), CURVE_FIELDS):
            rows[run_id] = _plotted_rows(unread[run_id], columns)
        if len(self._ended) + len(unread) > MAX_SERIES:
            self._ended.clear()
        self._ended |= {attempt: rows[run.id] for run in unread.values() if (attempt := _ended_attempt(run))}
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

    def _read_brief(self, experiment_id: str, version: int) -> Brief:
        experiment = self.experiments.get(experiment_id)
        if experiment.spec.answer is AnswerKind.FINDINGS:  # without the importance, which takes a second
            report, looks = self.analysis.sweep(experiment.id, importance=False), candidate_styles(experiment)
            return Brief(
                experiment=experiment,
                trials=tuple((finding, looks[finding.candidate]) for finding in report.findings if finding.best),
                lossless=tuple(finding.title for finding in report.findings if not finding.best),
                device_hours=report.device_hours,
            )
        snapshot = self._snapshot_at(experiment_id, version, "", "")
        lines = leaderboard(snapshot.comparison, snapshot.styles)
        return Brief(
            experiment=experiment,
            rows=tuple(line for line in lines if line.rank is not None),
            lossless=tuple(line.row.title for line in lines if line.rank is None),
            device_hours=snapshot.device_hours,
        )

    def _read_judged(
        self, experiment_id: str, updated_at: float, runs: int
    ) -> tuple[tuple[JudgedCandidate, Style], ...]:
        """Return the candidates of an experiment of logged runs; none without a verdict, or with too many runs."""
        if runs > MOST_JUDGED:
            return ()
        experiment = self.external_runs.experiment(experiment_id)
        looks = external_styles(experiment.candidates)
        try:
            rows = judge(experiment, self.external_runs.runs(experiment_id), JudgementChoice()).rows
        except ConflictError:
            return ()
        return tuple((row, looks[row.candidate]) for row in rows if row.loss is not None)

    def _read_snapshot(self, experiment_id: str, version: int, cell: str, baseline: str) -> Snapshot:
        whole: ExperimentWithRuns = self.experiments.get(experiment_id), tuple(self.runs.read_all(experiment_id))
        experiment, runs = whole
        answer: Comparison | SweepReport
        if experiment.spec.answer is AnswerKind.FINDINGS:
            answer = self.analysis.sweep(experiment_id)
        else:
            experiment, runs = select_cell(*whole, cell or None)
            chosen = baseline if any(candidate.name() == baseline for candidate in experiment.spec.candidates) else None
            answer = self.analysis.judge(experiment, runs, chosen)
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
