"""Retention in a remote folder: which checkpoints stay there. Workers only add; the service alone deletes.

Of a run that goes on stay the newest two that it has told of, for an attempt resumes from nothing else, and whatever is
newer: it may be told of any moment. Of an ended one stays what `retention.py` keeps on the disk. What belongs to no run
of this database is left alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
import structlog

from orchestrator.jobs import TERMINAL, RunStatus
from orchestrator.kept import Keep, Kept, forget, kept_of
from orchestrator.store.database import Database
from orchestrator.store.moves import lock_run
from orchestrator.store.tables import checkpoints, runs
from worker.remote_checkpoints import Kind, RemoteCheckpoint, complete, named
from worker.remote_folder import RemoteFolder

log = structlog.get_logger(__name__)

KEPT_LIVE = 2
"""The newest, and the one before in case the newest turns out damaged; as on a worker's disk."""


def prune_remote(database: Database, folder: RemoteFolder, keep: Keep) -> int:
    """Delete what no run needs there; returns how many files went. Raises `RemoteFolderError`."""
    names = _by_run(folder.sizes())
    removed = 0
    for run_id, (status, told) in _known(database, names).items():
        superfluous = surplus(names[run_id], status, told, keep)
        folder.remove(f"{run_id}/{name}" for name in superfluous)
        removed += len(superfluous)
        if superfluous and status in TERMINAL:
            _forget(database, run_id, keep)
    if removed:
        log.info("checkpoints in the remote folder deleted", files=removed)
    return removed


def remove_remote(folder: RemoteFolder, run_ids: Iterable[str]) -> None:
    """Delete everything of these runs. Raises `RemoteFolderError`."""
    for run_id in run_ids:
        of_run = folder.below(run_id)
        of_run.remove(of_run.sizes())


def surplus(names: Sequence[str], status: RunStatus, told: RemoteCheckpoint | None, keep: Keep) -> list[str]:
    """The files of one run that go; `told` is the newest checkpoint that the service has heard of."""
    ended = status in TERMINAL
    kept = kept_of(status, keep) if ended else Kept(last=KEPT_LIVE, best=True)
    first = {
        "step": _first_kept(names, "step", kept.last, told),
        "best": _first_kept(names, "best", int(kept.best), None),
    }
    if not ended and told is None:
        return []
    mine = [(name, found[0]) for name in names if (found := named(name)) is not None]
    return [name for name, each in mine if (least := first[each.kind]) is None or each.step < least]


def _first_kept(names: Sequence[str], kind: Kind, count: int, told: RemoteCheckpoint | None) -> int | None:
    """The step from which on all of that kind stay; None where none does."""
    if count == 0:
        return None
    whole = [each.step for each in complete(names, kind)]
    settled = whole if told is None else [step for step in whole if step <= told.step]
    return settled[-count] if len(settled) >= count else 0


def _by_run(names: Iterable[str]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        run_id, _, rest = name.partition("/")
        found[run_id].append(rest)
    return dict(found)


def _known(database: Database, run_ids: Iterable[str]) -> dict[str, tuple[RunStatus, RemoteCheckpoint | None]]:
    """Of each of these runs that there is: its state, and the newest checkpoint that was told of."""
    found: dict[str, tuple[RunStatus, RemoteCheckpoint | None]] = {}
    wanted = list(run_ids)
    newest = (
        sa.select(checkpoints.c.run_id, checkpoints.c.attempt, sa.func.max(checkpoints.c.step).label("step"))
        .group_by(checkpoints.c.run_id, checkpoints.c.attempt)
        .order_by(checkpoints.c.attempt)
    )
    with database.reading() as connection:
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            told = {
                row.run_id: RemoteCheckpoint(step=row.step, attempt=row.attempt, kind="step")
                for row in connection.execute(newest.where(checkpoints.c.run_id.in_(some)))
            }
            for row in connection.execute(sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_(some))):
                found[row.id] = row.status, told.get(row.id)
    return found


AT_ONCE = 500
"""Runs in one question."""


def _forget(database: Database, run_id: str, keep: Keep) -> None:
    """No checkpoint is told of that is not there, unless the run goes on meanwhile."""
    with database.writing() as connection:
        found = lock_run(database, connection, run_id)
        if found is not None and found[0].status in TERMINAL:
            forget(connection, run_id, kept_of(found[0].status, keep))
