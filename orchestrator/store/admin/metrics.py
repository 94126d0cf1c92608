"""Metrics: how many runs, attempts and reports there are, how old and how fast, counted in the database.

Metrics that both processes share are counted here and not in memory: the dispatcher needs no port of its own, a
restart resets nothing, and every replica of the api tells the same. What deletion has removed is counted still: a
counter that fell would be read as a restart.
"""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.jobs import LIVE, AttemptOutcome, RunStatus
from orchestrator.records import ServiceMetrics, Timing
from orchestrator.store.admin.deletion import sums
from orchestrator.store.database import Database
from orchestrator.store.outgoing.exports import IS_TOLD
from orchestrator.store.tables import attempts, outbox, runs

NONE = (0, 0.0)


def service_metrics(database: Database, connection: Connection) -> ServiceMetrics:
    """Everything that is counted, of one moment. Some tens of milliseconds for 100,000 attempts."""
    of_runs = sa.select(
        runs.c.status,
        sa.func.count().label("runs"),
        sa.func.sum(runs.c.cpus).label("cpus"),
        sa.func.sum(runs.c.gpus).label("gpus"),
        sa.func.sum(runs.c.device_seconds).label("device_seconds"),
    )
    by_status = {row.status: row for row in connection.execute(of_runs.group_by(runs.c.status))}
    outcomes = sa.select(attempts.c.outcome, sa.func.count().label("attempts")).group_by(attempts.c.outcome)
    by_outcome = {row.outcome: int(row.attempts) for row in connection.execute(outcomes)}
    backlog = sa.select(sa.func.count(), database.now() - sa.func.min(outbox.c.created_at)).where(IS_TOLD)
    waiting, oldest = connection.execute(backlog).one()
    gone = sums(connection)
    at_work = [row for status, row in by_status.items() if status in LIVE]
    return ServiceMetrics(
        runs={status: int(by_status[status].runs) if status in by_status else 0 for status in RunStatus},
        attempts={
            outcome: by_outcome.get(outcome, 0) + gone.get(f"attempts {outcome.value}", NONE)[0]
            for outcome in AttemptOutcome
        },
        cpus_at_work=sum(int(row.cpus) for row in at_work),
        gpus_at_work=sum(int(row.gpus) for row in at_work),
        device_seconds=sum(float(row.device_seconds) for row in by_status.values()) + gone.get("device", NONE)[1],
        claim=_timing(
            connection, attempts.c.leased_at - runs.c.created_at, attempts.c.attempt == 1, gone.get("claim", NONE)
        ),
        dispatch=_timing(
            connection,
            attempts.c.started_at - attempts.c.leased_at,
            attempts.c.started_at.is_not(None),
            gone.get("dispatch", NONE),
        ),
        export_backlog=int(waiting),
        export_lag_seconds=max(float(oldest or 0.0), 0.0),
    )


def _timing(
    connection: Connection,
    seconds: sa.ColumnElement[float],
    condition: sa.ColumnElement[bool],
    gone: tuple[int, float],
) -> Timing:
    joined = attempts.join(runs, runs.c.id == attempts.c.run_id)
    query = sa.select(sa.func.count(), sa.func.sum(seconds)).select_from(joined).where(condition)
    count, total = connection.execute(query).one()
    return Timing(count=int(count) + gone[0], seconds=float(total or 0.0) + gone[1])
