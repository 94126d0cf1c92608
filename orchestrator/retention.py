"""Retention: which checkpoints of ended runs stay on the disk.

A run with a result needs none, whatever became of its worker's own cleaning. A failed or cancelled one keeps its last,
so that it can be looked into or tried again, unless the operator wants none kept. Logs are always left.
"""

import shutil
import threading
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
import structlog

from orchestrator.errors import OrchestratorError
from orchestrator.jobs import TERMINAL, RunStatus
from orchestrator.store.database import Database
from orchestrator.store.tables import checkpoints, runs

log = structlog.get_logger(__name__)

Keep = Literal["last", "none"]

EVERY_SECONDS = 60.0
FOLDER = "checkpoints"
"""Where in a run's folder its worker keeps them (`worker/run.py`)."""


class Retention:
    """A thread that looks at the runs' folders once a minute."""

    def __init__(self, database: Database, runs_folder: Path, keep: Keep) -> None:
        self._database, self._runs_folder, self._keep = database, runs_folder, keep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            try:
                prune(self._database, self._runs_folder, self._keep)
            except (OrchestratorError, OSError) as error:
                log.warning("checkpoints are not looked at now", error=str(error))


def prune(database: Database, runs_folder: Path, keep: Keep) -> tuple[str, ...]:
    """Delete what ended runs do not keep; returns the ids of the runs that lost something."""
    folders = {folder.parent.name: folder for folder in runs_folder.glob(f"*/{FOLDER}")}
    if not folders:
        return ()
    with database.reading() as connection:
        ended = runs.c.id.in_(folders), runs.c.status.in_(TERMINAL)
        status = {row.id: row.status for row in connection.execute(sa.select(runs.c.id, runs.c.status).where(*ended))}
    pruned = [run_id for run_id in status if _prune_folder(folders[run_id], _kept(status[run_id], keep))]
    if pruned:
        with database.writing() as connection:
            for run_id in pruned:
                _forget(connection, run_id, _kept(status[run_id], keep))
        log.info("checkpoints of ended runs deleted", runs=len(pruned))
    return tuple(pruned)


def _kept(status: RunStatus, keep: Keep) -> int:
    return 0 if status is RunStatus.SUCCEEDED or keep == "none" else 1


def _prune_folder(folder: Path, kept: int) -> bool:
    """Whether anything was deleted; notices go first, for a state without one is no checkpoint."""
    if kept == 0:
        shutil.rmtree(folder, ignore_errors=True)
        return True
    old = sorted(folder.glob("step-*.json"))[:-kept]
    for notice in old:
        notice.unlink(missing_ok=True)
        notice.with_suffix(".pt").unlink(missing_ok=True)
    return bool(old)


def _forget(connection: sa.Connection, run_id: str, kept: int) -> None:
    """No checkpoint is told of that is not there."""
    mine = checkpoints.c.run_id == run_id
    order = checkpoints.c.attempt, checkpoints.c.step
    known = connection.execute(sa.select(*order).where(mine).order_by(*order)).all()
    for attempt, step in known[: -kept or None]:
        this = checkpoints.c.attempt == attempt, checkpoints.c.step == step
        connection.execute(sa.delete(checkpoints).where(mine, *this))
