"""`Bench`: everything that a user, a page or a worker can ask of the service; the api and the pages only translate.

users    submit, experiments, runs, points, observations, compare, cancel, version
workers  hello, heartbeat, append_points, checkpoint, finish | stopped | fail      (each with its lease's token)
"""

from pathlib import Path

from orchestrator import comparison
from orchestrator.errors import MissingDataError
from orchestrator.experiments import ComparisonSpec
from orchestrator.jobs import LeasePolicy, RunStatus
from orchestrator.records import AttemptRecord, Comparison, EventRecord, ExperimentRecord, RunRecord, Submission
from orchestrator.store import observations, reads, series
from orchestrator.store.database import Database
from orchestrator.store.leases import Leases
from orchestrator.store.queue import Queue
from worker.data.prepared import missing
from worker.protocol import (
    Assignment,
    CheckpointNotice,
    Failure,
    Heartbeat,
    HeartbeatReply,
    PointsBatch,
    Stopped,
)
from worker.record import Observation, Point, Result

MAX_PAGE = 1_000
"""No page is longer, whatever is asked for."""


class Bench:
    """The verbs of the service. Thread-safe; every call is one transaction.

    Every method may raise `StoreError`; those that name a thing raise `NotFoundError` where it does not exist; those
    of workers raise `LeaseLostError` where the lease is gone.
    """

    def __init__(self, database: Database, policy: LeasePolicy, runs_folder: Path, datasets_folder: Path) -> None:
        self._database = database
        self._policy = policy
        self._runs_folder = runs_folder
        self._datasets_folder = datasets_folder
        self._queue = Queue(database, policy)
        self._leases = Leases(database, policy)

    # Users

    def submit(self, spec: ComparisonSpec, key: str | None = None) -> Submission:
        """Queue an experiment durably. The same key and specification give the same experiment again; the same key
        with another specification raises `IdempotencyError`; data that only a person can prepare must be there, else
        `MissingDataError`."""
        if found := missing(spec.workload, self._datasets_folder):
            raise MissingDataError(" ".join(found))
        experiment_id, created = self._queue.submit(spec, key)
        return Submission(experiment=self.experiment(experiment_id), created=created)

    def experiments(self, *, limit: int = 50, before: str | None = None) -> tuple[ExperimentRecord, ...]:
        """A page of experiments, newest first; `before` is the last experiment of the page before it."""
        with self._database.reading() as connection:
            return reads.experiment_page(connection, _page(limit), before)

    def experiment(self, experiment_id: str) -> ExperimentRecord:
        """One experiment with its counts and progress."""
        with self._database.reading() as connection:
            return reads.experiment(connection, experiment_id)

    def runs(
        self,
        *,
        experiment_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> tuple[RunRecord, ...]:
        """A page of runs, of newer experiments first, each experiment's by position; `after` is the last run of the
        page before it."""
        with self._database.reading() as connection:
            return reads.run_page(
                connection, experiment_id=experiment_id, status=status, limit=_page(limit), after=after
            )

    def run(self, run_id: str) -> RunRecord:
        """One run with its result, once there is one."""
        with self._database.reading() as connection:
            return reads.run(connection, run_id)

    def attempts(self, run_id: str) -> tuple[AttemptRecord, ...]:
        """All attempts of a run, the first one first."""
        with self._database.reading() as connection:
            return reads.attempt_records(connection, run_id)

    def events(self, run_id: str) -> tuple[EventRecord, ...]:
        """All changes of state of a run, the first one first."""
        with self._database.reading() as connection:
            return reads.event_records(connection, run_id)

    def points(self, run_id: str, *, after_step: int = -1) -> tuple[Point, ...]:
        """The series of a run beyond `after_step`: for each step, that of the newest attempt that reached it."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.read(connection, run_id, after_step)

    def observations(
        self, run_id: str, *, after_step: int = -1, most_steps: int | None = None
    ) -> tuple[Observation, ...]:
        """What the run's probes saw at up to so many steps beyond `after_step`, in order."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return observations.read(connection, run_id, after_step=after_step, most_steps=most_steps)

    def compare(self, experiment_id: str) -> Comparison:
        """The leaderboard of an experiment, from all of its runs."""
        with self._database.reading() as connection:
            experiment = reads.experiment(connection, experiment_id)
            runs = reads.run_page(connection, experiment_id=experiment_id, status=None, limit=None, after=None)
        return comparison.compare(experiment, runs)

    def cancel_experiment(self, experiment_id: str) -> ExperimentRecord:
        """Cancel every run of an experiment that has not ended; repeating it changes nothing."""
        self._queue.cancel_experiment(experiment_id)
        return self.experiment(experiment_id)

    def cancel_run(self, run_id: str) -> RunRecord:
        """Cancel one run; raises `ConflictError` if it has succeeded or failed already."""
        self._queue.cancel_run(run_id)
        return self.run(run_id)

    def version(self) -> int:
        """A number that grows with every visible change: a new state, points, progress. Cheap."""
        with self._database.reading() as connection:
            return reads.version(connection)

    def experiment_version(self, experiment_id: str) -> int:
        """As `version`, for one experiment."""
        with self._database.reading() as connection:
            return reads.experiment_version(connection, experiment_id)

    # Workers

    def hello(self, run_id: str, attempt: int, token: str) -> Assignment:
        """A worker begins its attempt and learns what to do."""
        spec, checkpoint = self._leases.hello(run_id, attempt, token)
        return Assignment(
            run_id=run_id,
            attempt=attempt,
            spec=spec,
            lease_seconds=self._policy.ttl_seconds,
            heartbeat_seconds=self._policy.heartbeat_seconds,
            run_folder=str(self._runs_folder / run_id),
            dataset_folder=str(self._datasets_folder),
            checkpoint=checkpoint,
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
        self._leases.finish(run_id, attempt, token, result)

    def stopped(self, run_id: str, attempt: int, token: str, stopped: Stopped) -> None:
        """The worker obeyed cancel or pause; raises `ConflictError` if nobody had asked it to stop."""
        self._leases.stopped(run_id, attempt, token, stopped)

    def fail(self, run_id: str, attempt: int, token: str, failure: Failure) -> None:
        """The attempt broke down without a result."""
        self._leases.fail(run_id, attempt, token, failure)

    def healthy(self) -> None:
        """Raise `StoreError` unless the store answers and has its tables."""
        self._database.check()


def _page(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
