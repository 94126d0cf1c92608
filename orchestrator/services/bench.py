"""`Bench`: everything that a user, a page or a worker can ask of the service; the api and the pages only translate.

users    experiments, runs, points, observations, series, charts, compare, profile, fit, version,
         cancel | pause | resume | retry; and what submission.py and curation.py add: submit; labels, notes, delete,
         restore, clone
workers  hello, heartbeat, append_points, checkpoint, finish | stopped | fail      (each with its lease's token)
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from orchestrator.activity import Activity, Stint
from orchestrator.analysis import comparison
from orchestrator.analysis.cells import Measured, cell_records, comparisons, one_comparison
from orchestrator.analysis.comparison import ValidationCurve
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.analysis.laws.targets import target
from orchestrator.analysis.profiles import ProfileReport, profiles
from orchestrator.columns import FIELDS, Columns, buckets
from orchestrator.dispatch.disk import shortage
from orchestrator.errors import NotFoundError
from orchestrator.jobs import LeasePolicy, RunStatus, Wish
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import (
    AnyExperiment,
    AttemptRecord,
    CellRecord,
    Census,
    Chart,
    Comparison,
    EventRecord,
    ExperimentRecord,
    RunFilter,
    RunRecord,
    RunSort,
    Standing,
)
from orchestrator.retention.policy import Keep
from orchestrator.services.curation import MAX_PAGE, CurationVerbs
from orchestrator.settings import NOWHERE, Remote
from orchestrator.specs import preview as previews
from orchestrator.specs.footprints import Footprints
from orchestrator.specs.preview import Preview
from orchestrator.store import activity, reads, series
from orchestrator.store.admin.audit import AuditLog
from orchestrator.store.admin.keyring import Keyring
from orchestrator.store.admin.metrics import census
from orchestrator.store.database import Database
from orchestrator.store.ended_runs import EndedRuns
from orchestrator.store.outgoing.webhooks import Webhooks
from orchestrator.store.queue.lease_check import opening
from orchestrator.store.queue.leases import Leases
from orchestrator.store.queue.queue import Queue
from orchestrator.sweeps import report
from orchestrator.sweeps.records import SweepReport
from worker.data.manifest import Manifest
from worker.data.prepared import list_prepared
from worker.errors import RemoteFolderError
from worker.footprint.cache import Needs, Wanted
from worker.records.protocol import (
    Assignment,
    CheckpointNotice,
    Failure,
    Heartbeat,
    HeartbeatReply,
    PointsBatch,
    Stopped,
)
from worker.records.result import Observation, Point, Result
from worker.remote.folder import ANSWERS
from worker.reporting import tracing
from worker.reporting.log import LinkedLogError, log_path
from worker.reporting.remote_logs import end_of, remote_name, whole_lines
from worker.spec.run import Workload

# The series of many runs at once: a figure of a thousand runs asks one thing of the database, not a thousand.


class SeriesVerbs:
    """The verb of this file, for `Bench`, which brings the database."""

    _database: Database

    def many_series(self, run_ids: Sequence[str], fields: Sequence[str]) -> Iterator[tuple[str, Columns]]:
        """Each run that has points with the asked fields of its series, as `series` gives them, one in memory at a
        time; an id that names no run is left out."""
        with self._database.reading() as connection:
            yield from series.read_many(connection, run_ids, fields)


# What attempts printed, read where it lies: in the run's folder here, or else as its copy in the remote folder.


def log_tail(runs_folder: Path, remote: Remote, run_id: str, attempt: int, most_bytes: int) -> str:
    """The end of an attempt's log, from a line's beginning. Raises `NotFoundError` where there is none in reach."""
    path = log_path(runs_folder / run_id, attempt)
    try:
        tail = end_of(path, most_bytes)
    except LinkedLogError as error:
        raise NotFoundError(
            f"the log of attempt {attempt} of run {run_id} is not shown: {error.strerror}; remove that from its folder"
        ) from error
    except OSError as error:
        tail = _copy(remote.run_url(run_id), path, most_bytes, f"attempt {attempt} of run {run_id}", error)
    return tail.decode(errors="replace")


def _copy(url: str | None, path: Path, most_bytes: int, whose: str, here: OSError) -> bytes:
    if url is None:
        raise NotFoundError(
            f"{whose} has left no log here; it has not begun, or it ran on a machine that keeps its own"
        ) from here
    try:
        content = ANSWERS.read(url, remote_name(path), remembered_seconds=0)
    except RemoteFolderError as error:
        raise NotFoundError(f"{whose} has left no log here, and its copy cannot be had now: {error}") from error
    if content is None:
        raise NotFoundError(f"{whose} has left no log here, nor a copy at {url}: it has not begun, or copied none yet")
    return whole_lines(content[-most_bytes:]) if len(content) > most_bytes else content


DATABASE_FULL = (
    "the database has no room: submissions are refused, and trainings keep their reports; make room on its disk, and "
    "the service goes on by itself"
)
PAGE = 500
"""Runs read at once where all are wanted."""
PROMPT_SECONDS = 1.0
"""Heartbeats of trials that may be stopped early: the sooner they hear of it, the more of their device is saved."""
MAX_CURVES = 4_096
"""Validation curves that are kept: of some 100 evaluations each about 10 MB."""


class Bench(CurationVerbs, SeriesVerbs):
    """The verbs of the service. Thread-safe; every call is one transaction.

    Every method may raise `StoreError`; those that name a thing raise `NotFoundError` where it does not exist; those
    of workers raise `LeaseLostError` where the lease is gone.
    """

    def __init__(
        self,
        database: Database,
        policy: LeasePolicy,
        runs_folder: Path,
        datasets_folder: Path,
        *,
        free_bytes: int = 0,
        keep_checkpoints: Keep = "last",
        remote: Remote = NOWHERE,
        most_waiting: int | None = None,
    ) -> None:
        """`free_bytes`: with less free space no run is begun. `keep_checkpoints`: what is kept of ended runs.
        `most_waiting`: runs of one key that may wait to be begun."""
        self._database, self._policy = database, policy
        self._runs_folder, self._datasets_folder, self._remote = runs_folder, datasets_folder, remote
        self._free_bytes, self._keep_checkpoints = free_bytes, keep_checkpoints
        self._queue = Queue(database, policy)
        self._queue.most_waiting = most_waiting
        self._leases = Leases(database, policy)
        self.keyring = Keyring(database)
        self.audit = AuditLog(database)
        self.webhooks = Webhooks(database, runs_folder.parent)
        self._curves: dict[str, ValidationCurve] = {}
        self._ended = EndedRuns()
        self._needs = Needs()
        self.footprints = Footprints(runs_folder.parent / "footprints")

    # Users

    def prepared_texts(self) -> tuple[Manifest, ...]:
        """The texts that are prepared in the data folder, own ones too; damaged ones are left out."""
        return tuple(each for _, each in list_prepared(self._datasets_folder) if isinstance(each, Manifest))

    def preview(self, fields: object) -> Preview:
        """What submitting these fields would mean, or what is wrong with them; nothing is stored."""
        return previews.preview(
            fields,
            missing=self.missing,
            measured=self._measured_of_model,
            footprints=self.footprints,
        )

    def _measured_of_model(self, model: str) -> tuple[RunRecord, ...]:
        where = RunFilter(model=model, status=RunStatus.SUCCEEDED)
        return self.runs(where=where, sort=RunSort(key="ended_at", descending=True), limit=previews.MEASURED_RUNS)

    def experiment(self, experiment_id: str) -> ExperimentRecord:
        """One experiment with its counts and progress."""
        with self._database.reading() as connection:
            return reads.experiment(connection, experiment_id)

    def any_experiment(self, experiment_id: str) -> AnyExperiment:
        """One experiment with its counts and progress, damaged or not; `experiment` raises `DamagedError`."""
        with self._database.reading() as connection:
            return reads.any_experiment(connection, experiment_id)

    def studies_folder(self) -> Path:
        """Where the results of studies that train nothing lie."""
        return self._runs_folder.parent / "studies"

    def runs(
        self,
        *,
        experiment_id: str | None = None,
        status: RunStatus | None = None,
        where: RunFilter | None = None,
        sort: RunSort | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> tuple[RunRecord, ...]:
        """A page of runs, of newer experiments first, each experiment's by position, or sorted otherwise; `after` is
        the last run of the page before it. `where` filters by more than experiment and status."""
        where = where or RunFilter(experiment_id=experiment_id, status=status)
        with self._database.reading() as connection:
            return reads.run_page(connection, where=where, sort=sort, limit=_page(limit), after=after)

    def all_runs(self, experiment_id: str) -> Iterator[RunRecord]:
        """Every run of an experiment by position, read page by page."""
        after: str | None = None
        while page := self.runs(experiment_id=experiment_id, limit=PAGE, after=after):
            yield from page
            after = page[-1].id

    def run(self, run_id: str) -> RunRecord:
        """One run with its result, once there is one."""
        with self._database.reading() as connection:
            return reads.run(connection, run_id)

    def standing(self, run_id: str) -> Standing:
        """Where a run stands in the queue, and when it may start."""
        with self._database.reading() as connection:
            return activity.standing(self._database, connection, run_id)

    def attempts(self, run_id: str) -> tuple[AttemptRecord, ...]:
        """All attempts of a run, the first one first."""
        with self._database.reading() as connection:
            return reads.attempt_records(connection, run_id)

    def events(self, run_id: str) -> tuple[EventRecord, ...]:
        """All changes of state of a run, the first one first."""
        with self._database.reading() as connection:
            return reads.event_records(connection, run_id)

    def log_tail(self, run_id: str, attempt: int, most_bytes: int) -> str:
        """The end of what an attempt's process printed, from a line's beginning. Raises `NotFoundError` where there
        is no log: the attempt has not begun, or its machine shares neither our data folder nor storage."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)  # from here on the id is one of ours, and no path
        return log_tail(self._runs_folder, self._remote, run_id, attempt, most_bytes)

    def checkpoints(self, run_id: str) -> tuple[CheckpointNotice, ...]:
        """The checkpoints that the service knows of, from which a later attempt would go on with the last one."""
        with self._database.reading() as connection:
            return reads.checkpoint_notices(connection, run_id)

    def points(self, run_id: str, *, after_step: int = -1, limit: int | None = None) -> tuple[Point, ...]:
        """The series of a run beyond `after_step` as records, at most `limit` of them."""
        return tuple(self.series(run_id, after_step=after_step).rows(slice(limit)).points())

    def series(self, run_id: str, fields: Sequence[str] = FIELDS, *, after_step: int = -1) -> Columns:
        """The asked fields of a run's series beyond `after_step`, as columns: for each step those of the newest
        attempt that reached it."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.read(connection, run_id, fields, after_step)

    def damaged_points(self, run_id: str) -> int:
        """How many points of a run's series cannot be read, and are left out everywhere."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.damaged_points(connection, run_id)

    def charts(
        self, run_ids: Sequence[str], metric: str, count: int, *, after_step: int = -1, until_step: int | None = None
    ) -> tuple[Chart, ...]:
        """One metric of several runs, each over at most `count` ranges of steps: lowest, mean and highest value."""
        return tuple(self._chart(run_id, metric, count, after_step, until_step) for run_id in run_ids)

    def _chart(self, run_id: str, metric: str, count: int, after_step: int, until_step: int | None) -> Chart:
        columns = self.series(run_id, (metric,), after_step=after_step)
        if until_step is not None:
            columns = columns.rows(columns.step <= until_step)
        found = buckets(columns, metric, count)
        return Chart(
            run_id=run_id,
            metric=metric,
            first_step=tuple(found.first_step.astype(int).tolist()),
            last_step=tuple(found.last_step.astype(int).tolist()),
            points=tuple(found.points.tolist()),
            low=tuple(found.low.tolist()),
            mean=tuple(found.mean.tolist()),
            high=tuple(found.high.tolist()),
        )

    def observations(
        self, run_id: str, *, after_step: int = -1, most_steps: int | None = None
    ) -> tuple[Observation, ...]:
        """What the run's probes saw at up to so many steps beyond `after_step`, in order."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.read_observations(connection, run_id, after_step=after_step, most_steps=most_steps)

    def compare(self, experiment_id: str, cell: str | None = None, *, of: Measured | None = None) -> Comparison:
        """The leaderboard of an experiment, from all of its runs (`of`: as they were read already); of a scaling
        experiment that of one cell, by its key, or of its largest model."""
        experiment, runs = one_comparison(*(of or self._measured(experiment_id)), cell)
        return comparison.compare(experiment, runs, self._curves_of(comparison.compared_runs(experiment, runs)))

    def cells(self, experiment_id: str) -> tuple[CellRecord, ...]:
        """Every size and budget of a scaling experiment with its leaderboard, the smallest first, times to the
        baseline's loss left out; raises `ConflictError` for an experiment of another kind."""
        return cell_records(*self._measured(experiment_id))

    def sweep(self, experiment_id: str, *, importance: bool = True) -> SweepReport:
        """What a sweep found so far; raises `ConflictError` where the experiment is none."""
        return report.report(*self._measured(experiment_id), importance=importance)

    def sweep_comparison(self, experiment_id: str, seed_count: int) -> ComparisonSpec:
        """The comparison of a sweep's best trials over fresh seeds; raises `ConflictError` before there are any."""
        experiment, runs = self._measured(experiment_id)
        found = report.report(experiment, runs)
        return report.comparison_of_the_best(found, report.sweep_spec(experiment), seed_count)

    def profile(self, experiment_ids: Sequence[str]) -> ProfileReport:
        """How the candidates of several comparisons do over all of their workloads."""
        return profiles([one for each in dict.fromkeys(experiment_ids) for one in self._comparisons(each)])

    def fit(
        self,
        experiment_ids: Sequence[str],
        *,
        form: FormName | None = None,
        predict: Sequence[str] = (),
        wait: bool = True,
    ) -> FitReport:
        """The scaling laws of the candidates over these experiments; raises `FitError` if they share no candidate.
        `predict`: models of the catalog, or numbers of parameters. Without `wait` the exact memory of a model may be
        missing the first time."""
        measured = [one for each in dict.fromkeys(experiment_ids) for one in comparisons(*self._measured(each))]
        first = measured[0][0].spec
        targets = [target(each, first.workload.data.tokenizer) for each in predict]
        wanted = {
            each.name(): Wanted.of(each.optimizer, each.options)
            for each in first.candidates
            if not getattr(each, "rules", ())
        }
        models = {each.model for each in targets if each.model}
        keys = {(name, model): (model, want) for name, want in wanted.items() for model in models}
        known = self._needs.of(list(keys.values()), wait=wait)
        needs = {asked: known[key] for asked, key in keys.items() if key in known}
        return fit_experiments(measured, form=form, predict=targets, needs=needs)

    def _comparisons(self, experiment_id: str) -> Iterator[tuple[Workload, Comparison]]:
        """The workload and the leaderboard of a comparison, or of each cell of a scaling experiment."""
        for experiment, runs in comparisons(*self._measured(experiment_id)):
            curves = self._curves_of(comparison.compared_runs(experiment, runs))
            yield experiment.spec.workload, comparison.compare(experiment, runs, curves)

    def _measured(self, experiment_id: str) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
        """An experiment and all of its runs, of one moment."""
        with self._database.reading() as connection:
            return reads.experiment(connection, experiment_id), self._ended.of(connection, experiment_id)

    def _curves_of(self, run_ids: Sequence[str]) -> dict[str, ValidationCurve]:
        """The validation losses of ended runs: they never change again, so they are read once."""
        known = {run_id: self._curves[run_id] for run_id in run_ids if run_id in self._curves}
        if unknown := [run_id for run_id in run_ids if run_id not in known]:
            read = dict.fromkeys(unknown, ValidationCurve(steps=(), losses=()))
            with self._database.reading() as connection:
                for run_id, columns in series.read_many(connection, unknown, ("val_loss",)):
                    taken = columns.rows(np.isfinite(columns.values["val_loss"]))
                    steps, losses = taken.step.tolist(), taken.values["val_loss"].tolist()
                    read[run_id] = ValidationCurve(steps=tuple(steps), losses=tuple(losses))
            if len(self._curves) + len(read) > MAX_CURVES:
                self._curves.clear()
            self._curves |= read
            known |= read
        return known

    def wish_experiment(self, experiment_id: str, wish: Wish) -> AnyExperiment:
        """Cancel, pause, resume or retry every run of an experiment whose state allows it."""
        return self._queue.wish_experiment(experiment_id, wish)

    def wish_run(self, run_id: str, wish: Wish) -> RunRecord:
        """Cancel, pause, resume or retry one run; raises `ConflictError` where its state rules that out."""
        return self._queue.wish_run(run_id, wish)

    def cancel_experiment(self, experiment_id: str) -> AnyExperiment:
        """Cancel every run of an experiment that has not ended; repeating it changes nothing."""
        return self.wish_experiment(experiment_id, Wish.CANCEL)

    def cancel_run(self, run_id: str) -> RunRecord:
        """Cancel one run; raises `ConflictError` if it has succeeded or failed already."""
        return self.wish_run(run_id, Wish.CANCEL)

    def version(self) -> int:
        """A number that grows with every visible change: a new state, points, progress. Cheap."""
        with self._database.reading() as connection:
            return reads.version(connection)

    def experiment_version(self, experiment_id: str) -> int:
        """As `version`, for one experiment."""
        with self._database.reading() as connection:
            return reads.experiment_version(connection, experiment_id)

    # Workers

    def tokens_open(self, claims: Sequence[tuple[str, int, str]]) -> list[bool]:
        """Whether each (run, attempt, token) is that of an attempt; whether its lease lives, the verbs below say."""
        with self._database.reading() as connection:
            return opening(connection, claims)

    def hello(self, run_id: str, attempt: int, token: str) -> Assignment:
        """A worker begins its attempt and learns what to do."""
        greeting = self._leases.hello(run_id, attempt, token)
        heartbeat_seconds = self._policy.heartbeat_seconds
        return Assignment(
            run_id=run_id,
            attempt=attempt,
            spec=greeting.spec,
            lease_seconds=self._policy.ttl_seconds,
            heartbeat_seconds=min(heartbeat_seconds, PROMPT_SECONDS) if greeting.may_stop_early else heartbeat_seconds,
            run_folder=str(self._runs_folder / run_id),
            dataset_folder=str(self._datasets_folder),
            checkpoint=greeting.checkpoint,
            counted_steps=greeting.counted_steps,
            micro_batch_sequences=greeting.micro_batch_sequences,
            trace_parent=greeting.trace_parent,
            keep_best=self._keep_checkpoints == "best",
            checkpoint_url=self._remote.run_url(run_id),
            dataset_url=self._remote.dataset_url,
        )

    def heartbeat(self, run_id: str, attempt: int, token: str, beat: Heartbeat) -> HeartbeatReply:
        """Extend the lease and learn whether to continue."""
        return self._leases.heartbeat(run_id, attempt, token, beat)

    def append_points(self, run_id: str, attempt: int, token: str, batch: PointsBatch) -> None:
        """Add points to the attempt's series; idempotent by the batch's sequence."""
        self._leases.append_points(run_id, attempt, token, batch)

    def checkpoint(self, run_id: str, attempt: int, token: str, notice: CheckpointNotice) -> None:
        """Record a complete checkpoint."""
        self._leases.checkpoint(run_id, attempt, token, notice)

    def finish(self, run_id: str, attempt: int, token: str, result: Result) -> None:
        """Record the run's one result."""
        parent = self._trace_parent(run_id) if tracing.is_on() else None
        with tracing.span("finish", parent, {"run": run_id, "attempt": attempt}):
            self._leases.finish(run_id, attempt, token, result)

    def _trace_parent(self, run_id: str) -> str | None:
        with self._database.reading() as connection:
            return reads.trace_parent(connection, run_id)

    def stopped(self, run_id: str, attempt: int, token: str, stopped: Stopped) -> None:
        """The worker obeyed cancel or pause; raises `ConflictError` if nobody had asked it to stop."""
        self._leases.stopped(run_id, attempt, token, stopped)

    def fail(self, run_id: str, attempt: int, token: str, failure: Failure) -> None:
        """The attempt broke down without a result."""
        self._leases.fail(run_id, attempt, token, failure)

    def census(self) -> Census:
        """How many runs, attempts and reports there are, for metrics."""
        with self._database.reading() as connection:
            return census(self._database, connection)

    def hindrance(self) -> str | None:
        """Why no waiting run is begun now, for all to see; None where nothing is in the way."""
        folder = next((each for each in (self._runs_folder, *self._runs_folder.parents) if each.exists()), Path("/"))
        if reason := shortage(folder, self._free_bytes):
            return reason
        return DATABASE_FULL if self._database.is_full() else None

    def activity(self, *, waiting: int = 100) -> Activity:
        """What is going on now: runs at work, the head of the queue, recent failures, who leads."""
        with self._database.reading() as connection:
            return activity.activity(self._database, connection, waiting=_page(waiting))

    def stints(self, experiment_id: str) -> tuple[Stint, ...]:
        """Every attempt of every run of an experiment, the earliest first."""
        with self._database.reading() as connection:
            return activity.stints(connection, experiment_id)

    def healthy(self) -> None:
        """Raise `StoreError` unless the store answers and has its tables."""
        self._database.check()


def _page(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
