"""Limits of time: a run's own (`max_run_seconds`), and the deadline of its experiment (`deadline_seconds`).

A run whose time is up is cancelled by the dispatcher as by a user: its worker is asked to write a checkpoint and to
leave, and is ended by force after the grace time. Its reason, its events and `limit_reached` say why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.jobs import LIVE, RunId, RunStatus, TimeLimit
from orchestrator.store.database import Database
from orchestrator.store.queue.transitions import move
from orchestrator.store.run_rows import RunRow, lock_ids
from orchestrator.store.tables import attempts, experiments, runs

MOST_AT_ONCE = 1000
"""Stopped in one transaction; the others in the next one, a second later."""

_NOT_CANCELLING = LIVE - {RunStatus.CANCELLING}


def renew_time_limits(run: RunRow, now: float) -> RunRow:
    """A run that is tried again by a user's word: it gets all of its own time, and no deadline that is over."""
    deadline_at = run.deadline_at if run.deadline_at is not None and run.deadline_at > now else None
    return replace(run, limit_reached=None, max_seconds_from=run.device_seconds, deadline_at=deadline_at)


def stop_late(database: Database) -> tuple[tuple[RunId, TimeLimit], ...]:
    """Stop the runs whose time is up; returns them, each with the limit that it reached. Cheap where there is none."""
    with database.reading() as connection:
        found = [
            *connection.execute(_runs_over_deadline(database)).scalars(),
            *connection.execute(_runs_over_time(database)).scalars(),
        ]
    if not found:
        return ()
    with database.writing() as connection:
        locked, now = lock_ids(database, connection, found)
        spent = _seconds_spent(connection, list(locked), now)
        # Asked again under the lock: it may have ended, or have been tried again, since it was found.
        pairs = [
            (run, after)
            for run in locked.values()
            if (after := _cancel_if_late(run, spent.get(run.id), now)) is not None
        ]
        _close_growth(connection, [run for run, after in pairs if after.limit_reached is TimeLimit.DEADLINE_SECONDS])
        move(connection, pairs, now)
        return tuple((run.id, after.limit_reached) for run, after in pairs if after.limit_reached)


def _runs_over_deadline(database: Database) -> sa.Select[Any]:
    open_and_late = runs.c.deadline_at.is_not(None) & runs.c.ended_at.is_(None) & (runs.c.deadline_at <= database.now())
    not_yet_stopped = runs.c.status != RunStatus.CANCELLING
    return sa.select(runs.c.id).where(open_and_late, not_yet_stopped).order_by(runs.c.deadline_at).limit(MOST_AT_ONCE)


def _seconds_spent_by_now(now: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    """Time of the earlier attempts, and this one's since its hello: a worker that is silent spends time, too. What a
    run has had is counted for each of its processes."""
    earlier = runs.c.device_seconds - attempts.c.device_seconds - runs.c.max_seconds_from
    return sa.cast(earlier / runs.c.processes, sa.Double) + (now - attempts.c.started_at)


def _runs_over_time(database: Database) -> sa.Select[Any]:
    """Only attempts under way are looked at, however many runs there are: `uq_attempts_live` finds them."""
    over = _seconds_spent_by_now(database.now()) >= runs.c.max_seconds
    query = sa.select(runs.c.id).join(attempts, attempts.c.run_id == runs.c.id)
    under_way = attempts.c.ended_at.is_(None), attempts.c.started_at.is_not(None), runs.c.status.in_(_NOT_CANCELLING)
    return query.where(*under_way, runs.c.max_seconds.is_not(None), over).limit(MOST_AT_ONCE)


def _seconds_spent(connection: Connection, ids: Sequence[str], now: float) -> Mapping[str, tuple[float, float]]:
    """Of each live run with a limit of its own: the time that it has had, and the time that it may have."""
    query = sa.select(runs.c.id, _seconds_spent_by_now(sa.literal(now)).label("spent"), runs.c.max_seconds)
    live = query.join(attempts, attempts.c.run_id == runs.c.id).where(
        runs.c.id.in_(ids), attempts.c.ended_at.is_(None), attempts.c.started_at.is_not(None)
    )
    rows = connection.execute(live.where(runs.c.max_seconds.is_not(None)))
    return {row.id: (row.spent, row.max_seconds) for row in rows}


def _cancel_if_late(run: RunRow, time: tuple[float, float] | None, now: float) -> RunRow | None:
    """What becomes of it; None where its time is not up, or where it is being stopped already."""
    if run.ended_at is not None or run.status is RunStatus.CANCELLING:
        return None
    if run.deadline_at is not None and run.deadline_at <= now:
        moment = datetime.fromtimestamp(run.deadline_at, UTC).isoformat(sep=" ", timespec="seconds")
        reason = f"the deadline of its experiment has passed: {moment}"
        return _cancel(run, TimeLimit.DEADLINE_SECONDS, reason)
    if time is not None and time[0] >= time[1]:
        reason = f"stopped after {time[0]:.0f} s: max_run_seconds allows {time[1]:g} s"
        return _cancel(run, TimeLimit.MAX_RUN_SECONDS, reason)
    return None


def _cancel(run: RunRow, limit: TimeLimit, reason: str) -> RunRow:
    status = RunStatus.CANCELLING if run.status in LIVE else RunStatus.CANCELLED
    return replace(run, status=status, reason=reason, limit_reached=limit)


def _close_growth(connection: Connection, late: Sequence[RunRow]) -> None:
    """A tuned comparison gets no further runs after its deadline."""
    ids = {run.experiment_id for run in late}
    if ids:
        query = sa.update(experiments).where(experiments.c.id.in_(ids), experiments.c.growing)
        connection.execute(query.values(growing=False, paused=False))
