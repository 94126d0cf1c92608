"""Where a waiting run stands in the queue, and when it may start. Nothing here writes."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.activity import DISPATCHER
from orchestrator.jobs import LIVE, RunStatus
from orchestrator.records import Standing
from orchestrator.store.database import Database
from orchestrator.store.moves import known_id
from orchestrator.store.quotas import quotas
from orchestrator.store.reads import require_run
from orchestrator.store.tables import QUEUE_ORDER, experiments, is_claimable, leaders, runs

RECENT_RUNS = 50
"""Runs whose durations make the estimate: enough to be steady, few enough to follow a change of workload."""


def standing(database: Database, connection: Connection, run_id: str) -> Standing:
    """The run's place. Raises `NotFoundError`."""
    require_run(connection, run_id)
    columns = [*QUEUE_ORDER, runs.c.available_at, runs.c.schedulable, is_claimable.label("waits")]
    row = connection.execute(sa.select(*columns).where(runs.c.id == known_id(run_id))).one()
    waiting = sa.select(sa.func.count()).select_from(runs).where(is_claimable, runs.c.schedulable)
    total = int(connection.execute(waiting).scalar_one())
    if not row.waits or not row.schedulable:
        return Standing(position=None, waiting=total, starts_in_seconds=None)
    mine = sa.tuple_(*[sa.literal(row._mapping[column.name], column.type) for column in QUEUE_ORDER])
    position = 1 + int(connection.execute(waiting.where(sa.tuple_(*QUEUE_ORDER) < mine)).scalar_one())
    now = database.read_clock(connection)
    pause = max(row.available_at - now, 0.0)
    pace = seconds_between_starts(connection, now)
    hold = _quota_hold(database, connection, row.experiment_number)
    starts_in = None if pace is None or hold is not None else max(position * pace, pause)
    return Standing(position=position, waiting=total, starts_in_seconds=starts_in, waits_for=hold)


def _quota_hold(database: Database, connection: Connection, experiment_number: int) -> str | None:
    """Why the experiment's key may begin nothing now; None where it may, or the experiment is nobody's."""
    query = sa.select(experiments.c.key_id).where(experiments.c.number == experiment_number)
    key_id = connection.execute(query).scalar_one()
    if key_id is None:
        return None
    quota = quotas(connection, database.read_clock(connection)).get(key_id)
    return quota.reason() if quota is not None and quota.runs_left() == 0 else None


def seconds_between_starts(connection: Connection, now: float) -> float | None:
    """Mean duration of the last runs over the number of runs at work; None while there is neither, and while no
    dispatcher is there to begin any."""
    leads = sa.select(leaders.c.role).where(leaders.c.role == DISPATCHER, leaders.c.expires_at > now)
    if connection.execute(leads).first() is None:
        return None
    seconds = (runs.c.ended_at - runs.c.started_at).label("seconds")
    ended = sa.select(seconds).where(runs.c.status == RunStatus.SUCCEEDED)
    recent = ended.order_by(runs.c.ended_at.desc()).limit(RECENT_RUNS).subquery()
    mean = connection.execute(sa.select(sa.func.avg(recent.c.seconds))).scalar_one()
    at_work = connection.execute(sa.select(sa.func.count()).select_from(runs).where(runs.c.status.in_(LIVE)))
    number = int(at_work.scalar_one())
    return None if mean is None or not number else float(mean) / number
