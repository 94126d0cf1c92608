"""Retention: which checkpoints of runs stay, on the disk and in a remote folder; a duty deletes the others.

A run with a result resumes from none, whatever became of its worker's own cleaning. A failed or cancelled one keeps
its last, so that it can be looked into or tried again, unless the operator wants none kept. Logs are always left, but
for those of experiments that were deleted and can no longer be restored: of these nothing stays (`removal.py`).

To a remote folder workers only add; the service alone deletes. Of a run that goes on stay there the newest two that it
has told of, for an attempt resumes from nothing else, and whatever is newer: it may be told of any moment. What an
attempt left is older than all of its successors', whatever its step: the run went on without it. What belongs to no run
of this database is left alone.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
import structlog

from orchestrator.errors import OrchestratorError
from orchestrator.jobs import TERMINAL, RunStatus
from orchestrator.retention.removal import remove_deleted
from orchestrator.store.database import Database
from orchestrator.store.ids import id_slices
from orchestrator.store.leadership import Duty
from orchestrator.store.run_rows import lock_run
from orchestrator.store.tables import checkpoints, runs
from worker.errors import RemoteFolderError
from worker.remote.checkpoints import RemoteCheckpoint, complete_checkpoints, parse_checkpoint_name
from worker.remote.folder import RemoteFolder

log = structlog.get_logger(__name__)

EVERY_SECONDS = 60.0
FOLDER = "checkpoints"
"""The folder in a run's folder in which its worker keeps them (`worker/run.py`)."""
LIVE_CHECKPOINTS = 2
"""The number of checkpoints that a live run keeps in a remote folder: the newest, and the one before in case the newest
turns out damaged; as on a worker's disk."""
Keep = Literal["last", "none"]


def count_kept_checkpoints(status: RunStatus, keep: Keep) -> int:
    """Return the number of kept checkpoints of an ended run, to continue from."""
    return int(status is not RunStatus.SUCCEEDED and keep != "none")


def forget_checkpoints(connection: sa.Connection, run_id: str, count: int) -> None:
    """Forget all but the newest `count` checkpoints of a run."""
    columns = checkpoints.c
    by_age = sa.select(columns.attempt, columns.step).order_by(columns.attempt.desc(), columns.step.desc())
    newest = by_age.where(columns.run_id == run_id).limit(count)
    is_forgotten = sa.tuple_(columns.attempt, columns.step).not_in(newest)
    connection.execute(sa.delete(checkpoints).where(columns.run_id == run_id, is_forgotten))


class Retention(Duty):
    """Looks at the runs' folders once a minute, here and where checkpoints are copied to; each process at its own."""

    name = "retention"

    def __init__(self, database: Database, runs_folder: Path, keep: Keep, checkpoint_url: str | None = None) -> None:
        self._database, self._runs_folder, self._keep = database, runs_folder, keep
        self._remote = RemoteFolder(checkpoint_url) if checkpoint_url else None

    def work(self) -> float:
        """Delete what nobody keeps."""
        try:
            prune(self._database, self._runs_folder, self._keep)
            if self._remote is not None:
                prune_remote(self._database, self._remote, self._keep, self.is_stopping)
        except (OrchestratorError, RemoteFolderError, OSError) as error:
            log.warning("checkpoints are not looked at now", error=str(error))
        if not self.is_stopping():
            try:
                remove_deleted(self._database, self._runs_folder, self.is_stopping, self._remote)
            except (OrchestratorError, OSError) as error:
                log.warning("deleted experiments are not looked at now", error=str(error))
        return EVERY_SECONDS


def prune(database: Database, runs_folder: Path, keep: Keep) -> tuple[str, ...]:
    """Delete what ended runs do not keep; returns the ids of the runs that lost something."""
    folders = {folder.parent.name: folder for folder in runs_folder.glob(f"*/{FOLDER}")}
    if not folders:
        return ()
    status: dict[str, RunStatus] = {}
    with database.reading() as connection:
        for run_ids in id_slices(folders):
            ended = runs.c.id.in_(run_ids), runs.c.status.in_(TERMINAL)
            rows = connection.execute(sa.select(runs.c.id, runs.c.status).where(*ended))
            status |= {row.id: row.status for row in rows}
    too_full = [
        run_id
        for run_id in status
        if _local_surplus(folders[run_id], count_kept_checkpoints(status[run_id], keep))
        or not any(folders[run_id].glob("*.json"))
    ]
    pruned = tuple(run_id for run_id in too_full if _prune_run(database, run_id, folders[run_id], keep))
    if pruned:
        log.info("checkpoints of ended runs deleted", runs=len(pruned))
    return pruned


def _local_surplus(folder: Path, count: int) -> list[Path]:
    """Return the notices of the checkpoints that are to be deleted: all but the newest `count`."""
    return sorted(folder.glob("*.json"))[: -count or None]


def _prune_run(database: Database, run_id: str, folder: Path, keep: Keep) -> bool:
    """Delete a run's surplus checkpoints if it has still ended, and return whether it has: it may have been retried
    meanwhile, and then needs its checkpoint.

    The files go under the run's lock, before anybody can retry it. Their number is small.
    """
    with database.writing() as connection:
        locked_run = lock_run(database, connection, run_id)
        if locked_run is None or locked_run[0].status not in TERMINAL:
            return False
        count = count_kept_checkpoints(locked_run[0].status, keep)
        for notice in _local_surplus(folder, count):
            notice.unlink(missing_ok=True)  # first: a state without one is not a checkpoint
            notice.with_suffix(".pt").unlink(missing_ok=True)
        if not any(folder.glob("*.json")):
            shutil.rmtree(folder, ignore_errors=True)
        forget_checkpoints(connection, run_id, count)
        return True


def prune_remote(
    database: Database, folder: RemoteFolder, keep: Keep, stopping: Callable[[], bool] = lambda: False
) -> int:
    """Delete what no run needs there; returns how many files went. Raises `RemoteFolderError`."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for path in folder.sizes():
        run_id, _, file_name = path.partition("/")
        names[run_id].append(file_name)
    removed = 0
    for run_id, (status, newest) in _read_runs(database, names).items():
        if stopping():
            break
        superfluous = remote_surplus(names[run_id], status, newest, keep)
        if superfluous and status in TERMINAL:
            superfluous = _forget_remote_surplus(database, run_id, names[run_id], keep)
        folder.remove(f"{run_id}/{name}" for name in superfluous)
        removed += len(superfluous)
    if removed:
        log.info("checkpoints in the remote folder deleted", files=removed)
    return removed


def remote_surplus(names: Sequence[str], status: RunStatus, newest: RemoteCheckpoint | None, keep: Keep) -> list[str]:
    """Return the files of one run that are to be deleted: all but the newest whole ones up to the `newest` that was
    told of, and what is newer."""
    has_ended = status in TERMINAL
    if newest is None and not has_ended:
        return []  # before any is told of, each may be the one that will be
    count = count_kept_checkpoints(status, keep) if has_ended else LIVE_CHECKPOINTS
    files = [(name, parsed[0]) for name in names if (parsed := parse_checkpoint_name(name)) is not None]
    if count == 0:
        return [name for name, _ in files]
    settled = [checkpoint for checkpoint in complete_checkpoints(names) if newest is None or checkpoint <= newest]
    return [name for name, checkpoint in files if checkpoint < settled[-count]] if len(settled) >= count else []


def _read_runs(database: Database, run_ids: Iterable[str]) -> dict[str, tuple[RunStatus, RemoteCheckpoint | None]]:
    """Return the state and the newest known checkpoint of each of these runs that exists; whether that is in the folder
    the service cannot know."""
    runs_by_id: dict[str, tuple[RunStatus, RemoteCheckpoint | None]] = {}
    with database.reading() as connection:
        for slice_ids in id_slices(run_ids):
            newest_by_run = _newest_checkpoints(connection, slice_ids)
            for row in connection.execute(sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_(slice_ids))):
                runs_by_id[row.id] = row.status, newest_by_run.get(row.id)
    return runs_by_id


def _newest_checkpoints(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, RemoteCheckpoint]:
    columns = checkpoints.c
    newest = (
        sa.select(columns.run_id, columns.attempt, sa.func.max(columns.step).label("step"))
        .where(columns.run_id.in_(run_ids))
        .group_by(columns.run_id, columns.attempt)
        .order_by(columns.attempt)
    )
    rows = connection.execute(newest)
    return {row.run_id: RemoteCheckpoint(attempt=row.attempt, step=row.step) for row in rows}


def _forget_remote_surplus(database: Database, run_id: str, names: Sequence[str], keep: Keep) -> list[str]:
    """Return the files of a run that go now that no row has them; none if it was retried since it was looked
    at.

    Rows go first: files that are left by a kill are found again, and nobody resumes from what is half deleted.
    """
    with database.writing() as connection:
        locked_run = lock_run(database, connection, run_id)
        if locked_run is None or locked_run[0].status not in TERMINAL:
            return []
        status = locked_run[0].status
        newest = _newest_checkpoints(connection, [run_id]).get(run_id)
        forget_checkpoints(connection, run_id, count_kept_checkpoints(status, keep))
        return remote_surplus(names, status, newest, keep)
