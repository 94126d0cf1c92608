"""`Runs`: what there is to know of single runs: records, series, logs; and what they can be asked: cancel to retry."""

import itertools
from collections.abc import Iterator, Sequence
from typing import IO, Unpack

from orchestrator.columns import FIELDS, Columns, buckets
from orchestrator.errors import NotFoundError
from orchestrator.jobs import LeasePolicy, RunAction
from orchestrator.records import (
    AttemptRecord,
    Chart,
    EventRecord,
    QueuePosition,
    RunFile,
    RunFilter,
    RunRecord,
)
from orchestrator.services.log_lines import SEARCHED_BYTES, LogLevel, LogLine, find_lines
from orchestrator.services.run_files import list_files, open_file
from orchestrator.storage import Storage
from orchestrator.store import activity, reads, series
from orchestrator.store.database import Database
from orchestrator.store.queue import run_actions
from orchestrator.store.tables import attempts, checkpoints, events
from worker.errors import RemoteFolderError
from worker.records.protocol import CheckpointNotice
from worker.records.result import Observation, Point, TextSamples
from worker.remote.folder import read_soon
from worker.reporting.log import LinkedLogError, log_path
from worker.reporting.remote_logs import end_of, remote_name, whole_lines

PAGE = 500
"""Runs read at once where all are wanted."""


class Runs:
    """The runs of one database. Thread-safe; every call is one transaction.

    Every method may raise `StoreError`; those that name a run raise `NotFoundError` if it does not exist.
    """

    def __init__(self, database: Database, policy: LeasePolicy, storage: Storage) -> None:
        self._database, self._policy, self._storage = database, policy, storage

    def get(self, run_id: str) -> RunRecord:
        """Return a run with its result, once there is one."""
        with self._database.reading() as connection:
            return reads.run(connection, run_id)

    def page(
        self,
        *,
        sort: str | None = None,
        limit: int = 100,
        after: str | None = None,
        **where: Unpack[RunFilter],
    ) -> tuple[RunRecord, ...]:
        """Return a page of runs, of newer experiments first, each experiment's by position, or sorted by one of
        `SORT_KEYS`; `after` is the last run of the page before it."""
        with self._database.reading() as connection:
            return reads.run_page(connection, sort=sort, limit=limit, after=after, **where)

    def read_all(self, experiment_id: str) -> Iterator[RunRecord]:
        """Yield every run of an experiment by position, read page by page."""
        cursor: str | None = None
        while page := self.page(experiment_id=experiment_id, limit=PAGE, after=cursor):
            yield from page
            cursor = page[-1].id

    def apply(self, run_id: str, action: RunAction, processes: int | None = None) -> RunRecord:
        """Cancel, pause, resume or retry one run, these two with another number of processes where one is given;
        raises `ConflictError` if its state or its specification rules that out."""
        return run_actions.apply_to_run(self._database, self._policy, run_id, action, processes)

    def queue_position(self, run_id: str) -> QueuePosition:
        """Return the run's place in the queue, and when it may start."""
        with self._database.reading() as connection:
            return activity.queue_position(self._database, connection, run_id)

    def attempts(self, run_id: str) -> tuple[AttemptRecord, ...]:
        """Return all attempts of a run, the first one first."""
        with self._database.reading() as connection:
            return reads.records_of_run(connection, run_id, AttemptRecord, attempts, "attempt")

    def events(self, run_id: str) -> tuple[EventRecord, ...]:
        """Return all changes of state of a run, the first one first."""
        with self._database.reading() as connection:
            return reads.records_of_run(connection, run_id, EventRecord, events, "sequence")

    def checkpoints(self, run_id: str) -> tuple[CheckpointNotice, ...]:
        """Return the checkpoints that the service knows of, from which a later attempt would go on with the last
        one."""
        with self._database.reading() as connection:
            return reads.records_of_run(connection, run_id, CheckpointNotice, checkpoints, "attempt", "step")

    def files(self, run_id: str) -> tuple[RunFile, ...]:
        """Return the files of a run: specification, result, logs, and the checkpoints that are kept."""
        return list_files(self._storage, self.get(run_id), self.checkpoints(run_id))

    def open_file(self, run_id: str, name: str) -> tuple[IO[bytes], int]:
        """Return a file of a run, open, with its size in bytes; raises `NotFoundError` also where it lies elsewhere."""
        return open_file(self._storage, self.get(run_id), self.checkpoints(run_id), name)

    def log_tail(self, run_id: str, attempt: int, most_bytes: int) -> str:
        """Return the end of what an attempt's process printed, from a line's beginning. Raises `NotFoundError` if
        there is no log: the attempt has not begun, or its machine shares neither our data folder nor storage."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)  # from here on the id is one of ours, and no path
        return log_tail(self._storage, run_id, attempt, most_bytes)

    def search_log(
        self, run_id: str, attempt: int, text: str, level: LogLevel, most_bytes: int
    ) -> tuple[tuple[LogLine, ...], int]:
        """Return the lines of an attempt's log that contain the text and are of that level or a worse one, the last
        ones of so many bytes; and how many such lines were found in its last `SEARCHED_BYTES`. Where all lines are
        asked for, no more is read than is given."""
        is_searched = bool(text) or level is not LogLevel.INFO
        tail = self.log_tail(run_id, attempt, SEARCHED_BYTES if is_searched else most_bytes)
        matching = find_lines(tail.splitlines(), text, level)
        sizes = itertools.accumulate(len(line.text.encode()) + 1 for line in reversed(matching))
        count = sum(1 for size in sizes if size <= most_bytes)
        return matching[len(matching) - count :], len(matching)

    def points(self, run_id: str, *, after_step: int = -1, limit: int | None = None) -> tuple[Point, ...]:
        """Return the series of a run beyond `after_step` as records, at most `limit` of them."""
        return tuple(self.series(run_id, after_step=after_step).rows(slice(limit)).points())

    def series(self, run_id: str, fields: Sequence[str] = FIELDS, *, after_step: int = -1) -> Columns:
        """Return the asked fields of a run's series beyond `after_step`, as columns: for each step those of the newest
        attempt that reached it."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.read(connection, run_id, fields, after_step)

    def many_series(self, run_ids: Sequence[str], fields: Sequence[str]) -> Iterator[tuple[str, Columns]]:
        """Yield each run that has points with the asked fields of its series, as `series` gives them, one in memory at
        a time; an id that names no run is left out. A figure of a thousand runs asks one thing of the database."""
        with self._database.reading() as connection:
            yield from series.read_many(connection, run_ids, fields)

    def damaged_points(self, run_id: str) -> int:
        """Return the number of unreadable points of a run's series, which are left out everywhere."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.damaged_points(connection, run_id)

    def charts(
        self, run_ids: Sequence[str], metric: str, count: int, *, after_step: int = -1, until_step: int | None = None
    ) -> tuple[Chart, ...]:
        """Return one metric of several runs, each over at most `count` ranges of steps: lowest, mean and highest
        value."""
        charts = []
        for run_id in run_ids:
            columns = self.series(run_id, (metric,), after_step=after_step)
            if until_step is not None:
                columns = columns.rows(columns.step <= until_step)
            ranges = {name: tuple(column.tolist()) for name, column in buckets(columns, metric, count).items()}
            charts.append(Chart(run_id=run_id, metric=metric, **ranges))
        return tuple(charts)

    def observations(
        self, run_id: str, *, after_step: int = -1, most_steps: int | None = None
    ) -> tuple[Observation, ...]:
        """Return the observations of the run's probes at up to so many steps beyond `after_step`, in order."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.read_observations(connection, run_id, after_step=after_step, most_steps=most_steps)

    def sampled_steps(self, run_id: str) -> tuple[int, ...]:
        """Return the steps after which the run's model wrote texts."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.sampled_steps(connection, run_id)

    def samples(self, run_id: str, *, after_step: int = -1, most_steps: int = 100) -> tuple[TextSamples, ...]:
        """Return the texts of the run's model at up to so many evaluations beyond `after_step`, in order."""
        with self._database.reading() as connection:
            reads.require_run(connection, run_id)
            return series.read_samples(connection, run_id, after_step=after_step, most_steps=most_steps)


# What attempts printed, read where it lies: in the run's folder here, or else as its copy in the remote folder.


def log_tail(storage: Storage, run_id: str, attempt: int, most_bytes: int) -> str:
    """Return the end of an attempt's log, from a line's beginning. Raises `NotFoundError` if there is none in
    reach."""
    path = log_path(storage.runs_folder() / run_id, attempt)
    try:
        tail = end_of(path, most_bytes)
    except LinkedLogError as error:
        raise NotFoundError(
            f"the log of attempt {attempt} of run {run_id} is not shown: {error.strerror}; remove that from its folder"
        ) from error
    except OSError as error:
        log_owner = f"attempt {attempt} of run {run_id}"
        if (url := storage.run_url(run_id)) is None:
            raise NotFoundError(
                f"{log_owner} has left no log here; it has not begun, or it ran on a machine that keeps its own"
            ) from error
        try:
            content = read_soon(url, remote_name(path))
        except RemoteFolderError as away:
            raise NotFoundError(f"{log_owner} has no log here, and its copy cannot be read now: {away}") from away
        if content is None:
            raise NotFoundError(
                f"{log_owner} has no log here and no copy at {url}: it has not started, or not copied one"
            ) from error
        tail = whole_lines(content[-most_bytes:]) if len(content) > most_bytes else content
    return tail.decode(errors="replace")
