"""Retention: which checkpoints of runs stay, on the disk and in a remote folder; a duty deletes the others.

A run with a result resumes from none, whatever became of its worker's own cleaning. A failed or cancelled one keeps
its last, so that it can be looked into or tried again, unless the operator wants none kept. Where `best` are kept,
every run keeps the one with its lowest validation loss, too. Logs are always left, but for those of experiments that
were deleted and can no longer be restored: of these nothing stays (`removal.py`).

To a remote folder workers only add; the service alone deletes. Of a run that goes on stay there the newest two that it
has told of, for an attempt resumes from nothing else, the best one that it has told of, and whatever is newer: it may
be told of any moment. What an attempt left is older than all of its successors', whatever its step: the run went on
without it. What belongs to no run of this database is left alone.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from worker.remote.checkpoints import Kind, RemoteCheckpoint, complete_checkpoints, parse_checkpoint_name
from worker.remote.folder import RemoteFolder

log = structlog.get_logger(__name__)

EVERY_SECONDS = 60.0
FOLDER = "checkpoints"
"""The folder in a run's folder in which its worker keeps them (`worker/run.py`)."""
LIVE_CHECKPOINTS: Mapping[Kind, int] = {"step": 2, "best": 1}
"""The number of checkpoints that a live run keeps in a remote folder: the newest, and the one before in case the newest
turns out damaged; as on a worker's disk."""
Keep = Literal["best", "last", "none"]
NewestCheckpoints = Mapping[Kind, RemoteCheckpoint]
"""The newest checkpoint of each kind that the service has heard of; whether it is in the folder it cannot know."""


def kept_checkpoints(status: RunStatus, keep: Keep) -> Mapping[Kind, int]:
    """Return the number of kept checkpoints of an ended run to continue from, and whether the one with its lowest loss
    is kept."""
    return {"step": int(status is not RunStatus.SUCCEEDED and keep != "none"), "best": int(keep == "best")}


def forget_checkpoints(connection: sa.Connection, run_id: str, policy: Mapping[Kind, int]) -> None:
    """Forget the checkpoints of a run that no longer exist."""
    columns = checkpoints.c
    key = sa.tuple_(columns.attempt, columns.step)
    for kind, count in policy.items():
        is_kind = columns.val_loss.is_(None) if kind == "step" else columns.val_loss.is_not(None)
        of_kind = sa.and_(columns.run_id == run_id, is_kind)
        by_age = sa.select(columns.attempt, columns.step).order_by(columns.attempt.desc(), columns.step.desc())
        newest = by_age.where(of_kind)
        connection.execute(sa.delete(checkpoints).where(of_kind, key.not_in(newest.limit(count))))


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
    too_full = [run_id for run_id in status if _has_surplus(folders[run_id], kept_checkpoints(status[run_id], keep))]
    pruned = tuple(run_id for run_id in too_full if _prune_run(database, run_id, folders[run_id], keep))
    if pruned:
        log.info("checkpoints of ended runs deleted", runs=len(pruned))
    return pruned


def _has_surplus(folder: Path, policy: Mapping[Kind, int]) -> bool:
    surplus = _local_surplus(folder, policy)
    return bool(surplus) or not any(folder.glob("*.json"))


def _local_surplus(folder: Path, policy: Mapping[Kind, int]) -> list[Path]:
    """Return the notices of the checkpoints that are to be deleted."""
    notices = {kind: sorted(folder.glob(f"{kind}-*.json")) for kind in policy}
    return [notice for kind, count in policy.items() for notice in notices[kind][: max(len(notices[kind]) - count, 0)]]


def _prune_run(database: Database, run_id: str, folder: Path, keep: Keep) -> bool:
    """Delete a run's surplus checkpoints if it has still ended, and return whether it has: it may have been retried
    meanwhile, and then needs its checkpoint.

    The files go under the run's lock, before anybody can retry it. Their number is small.
    """
    with database.writing() as connection:
        locked_run = lock_run(database, connection, run_id)
        if locked_run is None or locked_run[0].status not in TERMINAL:
            return False
        counts = kept_checkpoints(locked_run[0].status, keep)
        _prune_folder(folder, counts)
        forget_checkpoints(connection, run_id, counts)
        return True


def _prune_folder(folder: Path, policy: Mapping[Kind, int]) -> None:
    """Remove the surplus, notices first, for a state without one is no checkpoint."""
    for notice in _local_surplus(folder, policy):
        notice.unlink(missing_ok=True)
        notice.with_suffix(".pt").unlink(missing_ok=True)
    if not any(folder.glob("*.json")):
        shutil.rmtree(folder, ignore_errors=True)


def prune_remote(
    database: Database, folder: RemoteFolder, keep: Keep, stopping: Callable[[], bool] = lambda: False
) -> int:
    """Delete what no run needs there; returns how many files went. Raises `RemoteFolderError`."""
    names = _group_by_run(folder.sizes())
    removed = 0
    for run_id, (status, known_checkpoints) in _read_runs(database, names).items():
        if stopping():
            break
        superfluous = remote_surplus(names[run_id], status, known_checkpoints, keep)
        if superfluous and status in TERMINAL:
            superfluous = _forget_remote_surplus(database, run_id, names[run_id], keep)
        folder.remove(f"{run_id}/{name}" for name in superfluous)
        removed += len(superfluous)
    if removed:
        log.info("checkpoints in the remote folder deleted", files=removed)
    return removed


def remote_surplus(names: Sequence[str], status: RunStatus, reported: NewestCheckpoints, keep: Keep) -> list[str]:
    """Return the files of one run that are to be deleted."""
    has_ended = status in TERMINAL
    counts = kept_checkpoints(status, keep) if has_ended else LIVE_CHECKPOINTS
    # Before any of a kind is told of, each may be the one that will be.
    kinds = [kind for kind in counts if has_ended or kind in reported]
    return [name for kind in kinds for name in _surplus_of_kind(names, kind, counts[kind], reported.get(kind))]


def _surplus_of_kind(names: Sequence[str], kind: Kind, count: int, newest: RemoteCheckpoint | None) -> list[str]:
    """Return the files of that kind but for the newest `count` whole ones up to the one told of, and what is newer."""
    files = [
        (name, parsed_name[0])
        for name in names
        if (parsed_name := parse_checkpoint_name(name)) is not None and parsed_name[0].kind == kind
    ]
    if count == 0:
        return [name for name, _ in files]
    settled = [checkpoint for checkpoint in complete_checkpoints(names, kind) if newest is None or checkpoint <= newest]
    return [name for name, checkpoint in files if checkpoint < settled[-count]] if len(settled) >= count else []


def _group_by_run(names: Iterable[str]) -> dict[str, list[str]]:
    names_by_run: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        run_id, _, file_name = name.partition("/")
        names_by_run[run_id].append(file_name)
    return dict(names_by_run)


def _read_runs(database: Database, run_ids: Iterable[str]) -> dict[str, tuple[RunStatus, NewestCheckpoints]]:
    """Return the state and the known checkpoints of each of these runs that exists."""
    runs_by_id: dict[str, tuple[RunStatus, NewestCheckpoints]] = {}
    with database.reading() as connection:
        for slice_ids in id_slices(run_ids):
            checkpoints_by_run = _read_checkpoints(connection, slice_ids)
            for row in connection.execute(sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_(slice_ids))):
                runs_by_id[row.id] = row.status, checkpoints_by_run.get(row.id, {})
    return runs_by_id


def _read_checkpoints(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, NewestCheckpoints]:
    columns = checkpoints.c
    newest = (
        sa.select(columns.run_id, columns.attempt, sa.func.max(columns.step).label("step"))
        .where(columns.run_id.in_(run_ids))
        .group_by(columns.run_id, columns.attempt)
        .order_by(columns.attempt)
    )
    newest_by_run: dict[str, dict[Kind, RemoteCheckpoint]] = {}
    for row in connection.execute(newest):
        checkpoint = RemoteCheckpoint(attempt=row.attempt, step=row.step, kind="step")
        newest_by_run.setdefault(row.run_id, {})["step"] = checkpoint
    for row in connection.execute(newest.where(columns.val_loss.is_not(None))):
        newest_by_run[row.run_id]["best"] = RemoteCheckpoint(attempt=row.attempt, step=row.step, kind="best")
    return {**newest_by_run}


def _forget_remote_surplus(database: Database, run_id: str, names: Sequence[str], keep: Keep) -> list[str]:
    """Return the files of a run that go now that no row tells of them; none if it was retried since it was looked
    at.

    Rows go first: files that are left by a kill are found again, and nobody resumes from what is half deleted.
    """
    with database.writing() as connection:
        locked_run = lock_run(database, connection, run_id)
        if locked_run is None or locked_run[0].status not in TERMINAL:
            return []
        status = locked_run[0].status
        reported = _read_checkpoints(connection, [run_id]).get(run_id, {})
        forget_checkpoints(connection, run_id, kept_checkpoints(status, keep))
        return remote_surplus(names, status, reported, keep)
