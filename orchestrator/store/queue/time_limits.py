"""Limits of time: a run's own (`max_run_seconds`), and the deadline of its experiment (`deadline_seconds`).

A run whose time is up is cancelled by the dispatcher as by a user: its worker is asked to write a checkpoint and to
leave, and is ended by force after the grace time. Its reason, its events and `limit_reached` say why.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from orchestrator.jobs import LIVE, RunId, RunStatus, TimeLimit
from orchestrator.store.database import Database
from orchestrator.store.queue.transitions import move
from orchestrator.store.run_rows import RunRow, lock_ids
from orchestrator.store.tables import attempts, experiments, runs

MOST_AT_ONCE = 1000
"""Stopped in one transaction; the others in the next one, a second later."""

_NOT_CANCELLING = LIVE - {RunStatus.CANCELLING}


def renew_time_limits(run: RunRow, now: float) -> RunRow:
    """Return a run that a user retries: with its full time again, and without a deadline that has passed."""
    deadline_at = run.deadline_at if run.deadline_at is not None and run.deadline_at > now else None
    return replace(run, limit_reached=None, max_seconds_from=run.device_seconds, deadline_at=deadline_at)


def stop_late(database: Database) -> tuple[tuple[RunId, TimeLimit], ...]:
    """Stop the runs whose time is up; returns them, each with the limit that it reached. Cheap where there is none."""
    over_time = _runs_over_time(database)
    is_late = runs.c.deadline_at.is_not(None) & runs.c.ended_at.is_(None) & (runs.c.deadline_at <= database.now())
    over_deadline = sa.select(runs.c.id, runs.c.deadline_at).where(is_late, runs.c.status != RunStatus.CANCELLING)
    over_deadline = over_deadline.order_by(runs.c.deadline_at).limit(MOST_AT_ONCE)
    with database.reading() as connection:
        candidates = [row.id for query in (over_time, over_deadline) for row in connection.execute(query)]
    if not candidates:
        return ()
    with database.writing() as connection:
        locked, now = lock_ids(database, connection, candidates)
        late: dict[str, tuple[TimeLimit, str]] = {}
        # Asked again under the lock: it may have ended, or have been tried again, since it was found.
        for row in connection.execute(over_time.where(runs.c.id.in_(locked))):
            reason = f"stopped after {row.spent:.0f} s: max_run_seconds allows {row.max_seconds:g} s"
            late[row.id] = TimeLimit.MAX_RUN_SECONDS, reason
        for row in connection.execute(over_deadline.where(runs.c.id.in_(locked))):
            moment = datetime.fromtimestamp(row.deadline_at, UTC).isoformat(sep=" ", timespec="seconds")
            late[row.id] = TimeLimit.DEADLINE_SECONDS, f"the deadline of its experiment has passed: {moment}"
        stopped = [run for run in locked.values() if run.id in late]
        # A tuned comparison gets no further runs after its deadline.
        overdue = {run.experiment_id for run in stopped if late[run.id][0] is TimeLimit.DEADLINE_SECONDS}
        if overdue:
            closed = sa.update(experiments).where(experiments.c.id.in_(overdue), experiments.c.growing)
            connection.execute(closed.values(growing=False, paused=False))
        move(connection, [(run, _cancel(run, *late[run.id])) for run in stopped], now)
        return tuple((run.id, late[run.id][0]) for run in stopped)


def _runs_over_time(database: Database) -> sa.Select[Any]:
    """Select the runs by the time of the earlier attempts, and this one's since its hello: a worker that is silent
    spends time, too. What a run has had is counted for each of its processes. Only attempts under way are looked at,
    however many runs there are: `uq_attempts_live` finds them."""
    earlier = runs.c.device_seconds - attempts.c.device_seconds - runs.c.max_seconds_from
    spent = sa.cast(earlier / runs.c.processes, sa.Double) + (database.now() - attempts.c.started_at)
    query = sa.select(runs.c.id, spent.label("spent"), runs.c.max_seconds)
    under_way = attempts.c.ended_at.is_(None), attempts.c.started_at.is_not(None), runs.c.status.in_(_NOT_CANCELLING)
    late = query.join(attempts, attempts.c.run_id == runs.c.id).where(*under_way, spent >= runs.c.max_seconds)
    return late.where(runs.c.max_seconds.is_not(None)).limit(MOST_AT_ONCE)


def _cancel(run: RunRow, limit: TimeLimit, reason: str) -> RunRow:
    status = RunStatus.CANCELLING if run.status in LIVE else RunStatus.CANCELLED
    return replace(run, status=status, reason=reason, limit_reached=limit)
