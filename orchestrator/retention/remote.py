"""Retention in a remote folder: which checkpoints stay there. Workers only add; the service alone deletes.

Of a run that goes on stay the newest two that it has told of, for an attempt resumes from nothing else, the best one
that it has told of, and whatever is newer: it may be told of any moment. What an attempt left is older than all of its
successors', whatever its step: the run went on without it. Of an ended run stays what
`local.py` keeps on the disk.
What belongs to no run of this database is left alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
import structlog

from orchestrator.jobs import TERMINAL, RunStatus
from orchestrator.retention.policy import Keep, checkpoint_policy, forget
from orchestrator.store.database import Database
from orchestrator.store.run_rows import lock_run
from orchestrator.store.tables import checkpoints, runs
from worker.remote.checkpoints import Kind, RemoteCheckpoint, complete_checkpoints, parse_checkpoint_name
from worker.remote.folder import RemoteFolder

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class KnownCheckpoints:
    """The newest checkpoints of a run that the service has heard of; whether they are in the folder it cannot know."""

    step: RemoteCheckpoint | None = None
    """To go on from."""
    best: RemoteCheckpoint | None = None


KEPT_LIVE = 2
"""The newest, and the one before in case the newest turns out damaged; as on a worker's disk."""


def prune_remote(
    database: Database, folder: RemoteFolder, keep: Keep, stopping: Callable[[], bool] = lambda: False
) -> int:
    """Delete what no run needs there; returns how many files went. Raises `RemoteFolderError`."""
    names = _group_by_run(folder.sizes())
    removed = 0
    for run_id, (status, told) in _known_runs(database, names).items():
        if stopping():
            break
        superfluous = surplus(names[run_id], status, told, keep)
        if superfluous and status in TERMINAL:
            superfluous = _forget_surplus(database, run_id, names[run_id], keep)
        folder.remove(f"{run_id}/{name}" for name in superfluous)
        removed += len(superfluous)
    if removed:
        log.info("checkpoints in the remote folder deleted", files=removed)
    return removed


def remove_remote(folder: RemoteFolder, run_id: str) -> None:
    """Delete everything of this run. Raises `RemoteFolderError`."""
    folder.remove(folder.sizes(run_id))


def surplus(names: Sequence[str], status: RunStatus, told: KnownCheckpoints, keep: Keep) -> list[str]:
    """The files of one run that go."""
    if status in TERMINAL:
        kept = checkpoint_policy(status, keep)
        steps = _superfluous(names, "step", kept.last, told.step)
        return steps + _superfluous(names, "best", int(kept.best), told.best)
    # Before any of a kind is told of, each may be the one that will be.
    steps = _superfluous(names, "step", KEPT_LIVE, told.step) if told.step else []
    return steps + (_superfluous(names, "best", 1, told.best) if told.best else [])


def _superfluous(names: Sequence[str], kind: Kind, count: int, told: RemoteCheckpoint | None) -> list[str]:
    """The files of that kind but for the newest `count` whole ones up to the one told of, and what is newer."""
    mine = [
        (name, found[0])
        for name in names
        if (found := parse_checkpoint_name(name)) is not None and found[0].kind == kind
    ]
    if count == 0:
        return [name for name, _ in mine]
    settled = [each for each in complete_checkpoints(names, kind) if told is None or each <= told]
    return [name for name, each in mine if each < settled[-count]] if len(settled) >= count else []


def _group_by_run(names: Iterable[str]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        run_id, _, rest = name.partition("/")
        found[run_id].append(rest)
    return dict(found)


def _known_runs(database: Database, run_ids: Iterable[str]) -> dict[str, tuple[RunStatus, KnownCheckpoints]]:
    """Of each of these runs that there is: its state, and what was told of."""
    found: dict[str, tuple[RunStatus, KnownCheckpoints]] = {}
    wanted = list(run_ids)
    with database.reading() as connection:
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            told = _known_checkpoints(connection, some)
            for row in connection.execute(sa.select(runs.c.id, runs.c.status).where(runs.c.id.in_(some))):
                found[row.id] = row.status, told.get(row.id, KnownCheckpoints())
    return found


def _known_checkpoints(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, KnownCheckpoints]:
    this = checkpoints.c
    newest = (
        sa.select(this.run_id, this.attempt, sa.func.max(this.step).label("step"))
        .where(this.run_id.in_(run_ids))
        .group_by(this.run_id, this.attempt)
        .order_by(this.attempt)
    )

    def last(kind: Kind, query: sa.Select[Any]) -> dict[str, RemoteCheckpoint]:
        rows = connection.execute(query)
        return {row.run_id: RemoteCheckpoint(attempt=row.attempt, step=row.step, kind=kind) for row in rows}

    bests = last("best", newest.where(this.val_loss.is_not(None)))
    return {
        run_id: KnownCheckpoints(step=step, best=bests.get(run_id)) for run_id, step in last("step", newest).items()
    }


AT_ONCE = 500
"""Runs in one question."""


def _forget_surplus(database: Database, run_id: str, names: Sequence[str], keep: Keep) -> list[str]:
    """The files of a run that go now that no row tells of them; none where it was retried since it was looked at.

    Rows go first: files that are left by a kill are found again, and nobody resumes from what is half deleted.
    """
    with database.writing() as connection:
        found = lock_run(database, connection, run_id)
        if found is None or found[0].status not in TERMINAL:
            return []
        status = found[0].status
        told = _known_checkpoints(connection, [run_id]).get(run_id, KnownCheckpoints())
        forget(connection, run_id, checkpoint_policy(status, keep))
        return surplus(names, status, told, keep)
