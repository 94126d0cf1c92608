"""What is going on, read in a few statements. Nothing here writes."""

import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.activity import Activity, Leader, RunAtWork, Stint, WaitingRun
from orchestrator.jobs import LIVE, AttemptOutcome, RunStatus
from orchestrator.store.database import Database
from orchestrator.store.moves import known_id
from orchestrator.store.standing import seconds_between_starts
from orchestrator.store.tables import QUEUE_ORDER, attempts, experiments, is_claimable, is_kept, leaders, runs

DAY_SECONDS = 86_400
MOST_AT_WORK = 500
FAILURES = 12
RUN_FIELDS = ("experiment_id", "candidate", "optimizer", "lr", "seed", "status", "cpus", "gpus")


def activity(database: Database, connection: Connection, *, waiting: int) -> Activity:
    """Everything at this moment, with at most so many waiting runs. Some milliseconds for a full queue."""
    now = database.read_clock(connection)
    in_queue = sa.select(sa.func.count()).select_from(runs).where(is_claimable)
    failed = sa.select(sa.func.count()).select_from(runs)
    failed = failed.where(runs.c.status == RunStatus.FAILED, runs.c.ended_at > now - DAY_SECONDS, is_kept)
    return Activity(
        now=now,
        at_work=_at_work(connection, now),
        waiting=_waiting(connection, waiting, now),
        waiting_total=int(connection.execute(in_queue).scalar_one()),
        failures=_failures(connection),
        failed_runs=int(connection.execute(failed).scalar_one()),
        leaders=_leaders(connection, now),
        device_seconds_today=_device_seconds_since(connection, DAY_SECONDS * math.floor(now / DAY_SECONDS)),
    )


def stints(connection: Connection, experiment_id: str) -> tuple[Stint, ...]:
    """All attempts of all runs of an experiment, the earliest first."""
    query = _stints().where(runs.c.experiment_id == known_id(experiment_id)).order_by(attempts.c.leased_at)
    return tuple(Stint(**row._mapping) for row in connection.execute(query))


def _stints() -> sa.Select[Any]:
    names = ("run_id", "attempt", "node", "leased_at", "ended_at", "outcome", "message")
    joined = attempts.join(runs, runs.c.id == attempts.c.run_id)
    return sa.select(*(attempts.c[name] for name in names), runs.c.experiment_id, runs.c.candidate).select_from(joined)


def _failures(connection: Connection) -> tuple[Stint, ...]:
    broken = attempts.c.outcome.in_([AttemptOutcome.BROKEN, AttemptOutcome.LOST])
    query = _stints().where(broken, is_kept).order_by(attempts.c.ended_at.desc()).limit(FAILURES)
    return tuple(Stint(**row._mapping) for row in connection.execute(query))


def _at_work(connection: Connection, now: float) -> tuple[RunAtWork, ...]:
    columns = [runs.c[name] for name in (*RUN_FIELDS, "step", "steps_total", "tokens_per_second", "attempt")]
    joined = runs.join(attempts, sa.and_(attempts.c.run_id == runs.c.id, attempts.c.attempt == runs.c.attempt)).join(
        experiments, experiments.c.id == runs.c.experiment_id
    )
    query = (
        sa.select(
            runs.c.id.label("run_id"),
            experiments.c.name.label("experiment_name"),
            *columns,
            attempts.c.node,
            attempts.c.started_at,
            (now - attempts.c.heartbeat_at).label("silent_seconds"),
        )
        .select_from(joined)
        .where(runs.c.status.in_(sorted(LIVE)))
        .order_by(attempts.c.leased_at)
        .limit(MOST_AT_WORK)
    )
    return tuple(RunAtWork(**row._mapping) for row in connection.execute(query))


def _waiting(connection: Connection, most: int, now: float) -> tuple[WaitingRun, ...]:
    pace = seconds_between_starts(connection, now)
    joined = runs.join(experiments, experiments.c.id == runs.c.experiment_id)
    query = (
        sa.select(
            runs.c.id.label("run_id"),
            experiments.c.name.label("experiment_name"),
            *(runs.c[name] for name in (*RUN_FIELDS, "reason", "schedulable")),
        )
        .select_from(joined)
        .where(is_claimable)
        .order_by(sa.not_(runs.c.schedulable), *QUEUE_ORDER)
        .limit(most)
    )
    found = []
    for place, row in enumerate(connection.execute(query), start=1):
        values = dict(row._mapping)
        position = place if values.pop("schedulable") else None
        starts = None if pace is None or position is None else position * pace
        found.append(WaitingRun(**values, position=position, starts_in_seconds=starts))
    return tuple(found)


def _leaders(connection: Connection, now: float) -> tuple[Leader, ...]:
    rows = connection.execute(sa.select(leaders).order_by(leaders.c.role))
    return tuple(
        Leader(role=row.role, holder=row.holder, term=row.term, expires_in_seconds=row.expires_at - now) for row in rows
    )


def _device_seconds_since(connection: Connection, moment: float) -> float:
    """The time since `moment` that attempts held their devices: to their end, or to the last sign of life of those that
    have none yet. Those that were given up had long been silent: they end with their lease."""
    given_up = attempts.c.outcome.in_([AttemptOutcome.LOST, AttemptOutcome.INTERRUPTED])
    told = sa.func.coalesce(attempts.c.ended_at, attempts.c.heartbeat_at, attempts.c.leased_at)
    end = sa.case((given_up & (attempts.c.expires_at < told), attempts.c.expires_at), else_=told)
    start = sa.case((attempts.c.leased_at < moment, moment), else_=attempts.c.leased_at)
    recent = sa.or_(attempts.c.ended_at.is_(None), attempts.c.ended_at > moment)
    held = sa.func.sum((end - start) * runs.c.processes)
    query = sa.select(held).join(runs, runs.c.id == attempts.c.run_id).where(recent, end > start, is_kept)
    return float(connection.execute(query).scalar_one() or 0.0)
