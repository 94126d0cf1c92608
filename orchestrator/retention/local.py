"""Retention: which checkpoints of ended runs stay on the disk.

A run with a result resumes from none, whatever became of its worker's own cleaning. A failed or cancelled one keeps
its last, so that it can be looked into or tried again, unless the operator wants none kept. Where `best` are kept,
every run keeps the one with its lowest validation loss, too. Logs are always left, but for those of experiments that
were deleted and can no longer be restored: of these nothing stays (`removal.py`).
"""

import shutil
import threading
from pathlib import Path

import sqlalchemy as sa
import structlog

from orchestrator.errors import OrchestratorError
from orchestrator.jobs import TERMINAL
from orchestrator.retention.policy import CheckpointPolicy, Keep, checkpoint_policy, forget
from orchestrator.retention.remote import prune_remote
from orchestrator.retention.removal import remove_deleted
from orchestrator.store.database import Database
from orchestrator.store.run_rows import lock_run
from orchestrator.store.tables import runs
from worker.errors import RemoteFolderError
from worker.remote.folder import RemoteFolder

log = structlog.get_logger(__name__)

EVERY_SECONDS = 60.0
STOP_SECONDS = 5.0
"""So long a service that stops waits for it: what is not deleted now is found again."""
FOLDER = "checkpoints"
"""Where in a run's folder its worker keeps them (`worker/run.py`)."""


class Retention:
    """A thread that looks at the runs' folders once a minute, here and where checkpoints are copied to."""

    def __init__(self, database: Database, runs_folder: Path, keep: Keep, checkpoint_url: str | None = None) -> None:
        self._database, self._runs_folder, self._keep = database, runs_folder, keep
        self._remote = RemoteFolder(checkpoint_url) if checkpoint_url else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            try:
                prune(self._database, self._runs_folder, self._keep)
                if self._remote is not None:
                    prune_remote(self._database, self._remote, self._keep, self._stop.is_set)
            except (OrchestratorError, RemoteFolderError, OSError) as error:
                log.warning("checkpoints are not looked at now", error=str(error))
            if self._stop.is_set():
                return
            try:
                remove_deleted(self._database, self._runs_folder, self._stop.is_set, self._remote)
            except (OrchestratorError, OSError) as error:
                log.warning("deleted experiments are not looked at now", error=str(error))


def prune(database: Database, runs_folder: Path, keep: Keep) -> tuple[str, ...]:
    """Delete what ended runs do not keep; returns the ids of the runs that lost something."""
    folders = {folder.parent.name: folder for folder in runs_folder.glob(f"*/{FOLDER}")}
    if not folders:
        return ()
    with database.reading() as connection:
        ended = runs.c.id.in_(folders), runs.c.status.in_(TERMINAL)
        status = {row.id: row.status for row in connection.execute(sa.select(runs.c.id, runs.c.status).where(*ended))}
    too_full = [run_id for run_id in status if _has_surplus(folders[run_id], checkpoint_policy(status[run_id], keep))]
    pruned = tuple(run_id for run_id in too_full if _prune_run(database, run_id, folders[run_id], keep))
    if pruned:
        log.info("checkpoints of ended runs deleted", runs=len(pruned))
    return pruned


def _has_surplus(folder: Path, kept: CheckpointPolicy) -> bool:
    stays = kept.last + (kept.best and bool(_notices(folder, "best")))
    return stays == 0 or bool(_surplus(folder, kept))


def _surplus(folder: Path, kept: CheckpointPolicy) -> list[Path]:
    """The notices of what goes."""
    steps = _notices(folder, "step")
    return steps[: len(steps) - kept.last] + ([] if kept.best else _notices(folder, "best"))


def _prune_run(database: Database, run_id: str, folder: Path, keep: Keep) -> bool:
    """Whether it has still ended: it may have been retried since it was looked at, and needs its checkpoint then.

    The files go under the run's lock, before anybody can retry it. Their number is small.
    """
    with database.writing() as connection:
        found = lock_run(database, connection, run_id)
        if found is None or found[0].status not in TERMINAL:
            return False
        kept = checkpoint_policy(found[0].status, keep)
        _prune_folder(folder, kept)
        forget(connection, run_id, kept)
        return True


def _prune_folder(folder: Path, kept: CheckpointPolicy) -> None:
    """Notices go first, for a state without one is no checkpoint."""
    for notice in _surplus(folder, kept):
        notice.unlink(missing_ok=True)
        notice.with_suffix(".pt").unlink(missing_ok=True)
    if not any(folder.glob("*.json")):
        shutil.rmtree(folder, ignore_errors=True)


def _notices(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}-*.json"))
