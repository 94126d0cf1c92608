"""The current activity: a waiting run's place, the runs at work, waiting or failed, and the counts for metrics.

Metrics that both processes share are counted here and not in memory: the dispatcher needs no port of its own, a
restart resets nothing, and every replica of the api answers the same. Nothing here writes.
"""

import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.activity import DISPATCHER, Activity, AttemptSpan, Leader, RunAtWork, WaitingRun
from orchestrator.jobs import LIVE, AttemptOutcome, RunStatus
from orchestrator.records import QueuePosition, ServiceMetrics, Timing
from orchestrator.store.admin import deletion
from orchestrator.store.admin.quotas import quotas
from orchestrator.store.database import DAY_SECONDS, Database
from orchestrator.store.ids import validate_id
from orchestrator.store.outgoing.exports import IS_EXPORTED
from orchestrator.store.reads import require_run
from orchestrator.store.tables import QUEUE_ORDER, attempts, experiments, is_claimable, is_kept, leaders, outbox, runs

RECENT_RUNS = 50
"""Runs whose durations make the estimate: enough to be steady, few enough to follow a change of workload."""
MOST_AT_WORK = 500
FAILURES = 12


def queue_position(database: Database, connection: Connection, run_id: str) -> QueuePosition:
    """Return the run's place. Raises `NotFoundError`."""
    require_run(connection, run_id)
    columns = [*QUEUE_ORDER, runs.c.available_at, runs.c.schedulable, is_claimable.label("waits")]
    row = connection.execute(sa.select(*columns).where(runs.c.id == validate_id(run_id))).one()
    waiting = sa.select(sa.func.count()).select_from(runs).where(is_claimable, runs.c.schedulable)
    total = int(connection.execute(waiting).scalar_one())
    if not row.waits or not row.schedulable:
        return QueuePosition(position=None, waiting=total, starts_in_seconds=None)
    queue_key = sa.tuple_(*[sa.literal(row._mapping[column.name], column.type) for column in QUEUE_ORDER])
    position = 1 + int(connection.execute(waiting.where(sa.tuple_(*QUEUE_ORDER) < queue_key)).scalar_one())
    now = database.read_clock(connection)
    pause = max(row.available_at - now, 0.0)
    pace = seconds_between_starts(connection, now)
    hold = _quota_reason(database, connection, row.experiment_number)
    starts_in = None if pace is None or hold is not None else max(position * pace, pause)
    return QueuePosition(position=position, waiting=total, starts_in_seconds=starts_in, waits_for=hold)


def _quota_reason(database: Database, connection: Connection, experiment_number: int) -> str | None:
    """Return the reason why the experiment's key may start nothing now; None if it may, or the experiment has no
    key."""
    query = sa.select(experiments.c.key_id).where(experiments.c.number == experiment_number)
    key_id = connection.execute(query).scalar_one()
    if key_id is None:
        return None
    quota = quotas(connection, database.read_clock(connection)).get(key_id)
    return quota.reason() if quota is not None and quota.runs_left() == 0 else None


def seconds_between_starts(connection: Connection, now: float) -> float | None:
    """Return the mean duration of the last runs over the number of runs at work; None while there is neither, and while
    no dispatcher is there to begin any."""
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


def activity(database: Database, connection: Connection, *, waiting: int) -> Activity:
    """Return the activity of this moment, with at most so many waiting runs."""
    now = database.read_clock(connection)
    in_queue = sa.select(sa.func.count()).select_from(runs).where(is_claimable)
    failed = sa.select(sa.func.count()).select_from(runs)
    failed = failed.where(runs.c.status == RunStatus.FAILED, runs.c.ended_at > now - DAY_SECONDS, is_kept)
    return Activity(
        now=now,
        at_work=_runs_at_work(connection, now),
        waiting=_waiting(connection, waiting, now),
        waiting_total=int(connection.execute(in_queue).scalar_one()),
        failures=_failures(connection),
        failed_runs=int(connection.execute(failed).scalar_one()),
        leaders=tuple(
            Leader(role=row.role, holder=row.holder, term=row.term, expires_in_seconds=row.expires_at - now)
            for row in connection.execute(sa.select(leaders).order_by(leaders.c.role))
        ),
        device_seconds_today=_device_seconds_since(connection, DAY_SECONDS * math.floor(now / DAY_SECONDS)),
    )


def _failures(connection: Connection) -> tuple[AttemptSpan, ...]:
    names = ("run_id", "attempt", "node", "leased_at", "ended_at", "outcome", "message")
    columns = (*(attempts.c[name] for name in names), runs.c.experiment_id, runs.c.candidate)
    broken = attempts.c.outcome.in_([AttemptOutcome.BROKEN, AttemptOutcome.LOST])
    joined = attempts.join(runs, runs.c.id == attempts.c.run_id)
    spans = sa.select(*columns).select_from(joined).where(broken, is_kept)
    query = spans.order_by(attempts.c.ended_at.desc()).limit(FAILURES)
    return tuple(AttemptSpan(**row._mapping) for row in connection.execute(query))


def _runs_at_work(connection: Connection, now: float) -> tuple[RunAtWork, ...]:
    query = (
        _live_runs("step", "steps_total", "tokens_per_second", "attempt")
        .add_columns(attempts.c.node, attempts.c.started_at, (now - attempts.c.heartbeat_at).label("silent_seconds"))
        .join(attempts, (attempts.c.run_id == runs.c.id) & (attempts.c.attempt == runs.c.attempt))
        .where(runs.c.status.in_(sorted(LIVE)))
        .order_by(attempts.c.leased_at)
        .limit(MOST_AT_WORK)
    )
    return tuple(RunAtWork(**row._mapping) for row in connection.execute(query))


def _live_runs(*more: str) -> sa.Select[Any]:
    """Return the query of the fields of `LiveRun`, and more columns of runs."""
    names = ("experiment_id", "candidate", "optimizer", "lr", "seed", "status", "cpus", "gpus", *more)
    columns = runs.c.id.label("run_id"), experiments.c.name.label("experiment_name"), *(runs.c[name] for name in names)
    return sa.select(*columns).join(experiments, experiments.c.id == runs.c.experiment_id)


def _waiting(connection: Connection, limit: int, now: float) -> tuple[WaitingRun, ...]:
    pace = seconds_between_starts(connection, now)
    query = (
        _live_runs("reason", "schedulable")
        .where(is_claimable)
        .order_by(sa.not_(runs.c.schedulable), *QUEUE_ORDER)
        .limit(limit)
    )
    waiting_runs = []
    for rank, row in enumerate(connection.execute(query), start=1):
        values = dict(row._mapping)
        position = rank if values.pop("schedulable") else None
        starts = None if pace is None or position is None else position * pace
        waiting_runs.append(WaitingRun(**values, position=position, starts_in_seconds=starts))
    return tuple(waiting_runs)


def _device_seconds_since(connection: Connection, moment: float) -> float:
    """Return the attempts' device time since `moment`, as their experiments count it; of one that began before, the
    share of its time that lies behind the moment."""
    start, end = attempts.c.leased_at, sa.func.coalesce(attempts.c.ended_at, attempts.c.heartbeat_at)
    share = sa.case((start < moment, (end - moment) / (end - start)), else_=1.0)
    seconds = sa.func.sum(attempts.c.device_seconds * share)
    query = sa.select(seconds).join(runs, runs.c.id == attempts.c.run_id).where(end > moment, is_kept)
    return float(connection.execute(query).scalar_one() or 0.0)


def service_metrics(database: Database, connection: Connection) -> ServiceMetrics:
    """Return all counts of one moment.

    What deletion has removed is counted still: a counter that fell would be read as a restart.
    """
    columns = (runs.c.status, *(sa.func.sum(runs.c[name]).label(name) for name in ("cpus", "gpus")))
    of_runs = sa.select(*columns, sa.func.count().label("runs")).group_by(runs.c.status)
    by_status = {row.status: row for row in connection.execute(of_runs)}
    at_work = [row for status, row in by_status.items() if status in LIVE]
    backlog = sa.select(sa.func.count(), database.now() - sa.func.min(outbox.c.created_at)).where(IS_EXPORTED)
    waiting, oldest = connection.execute(backlog).one()
    counts = deletion.service_counts(connection)
    claim, dispatch = (Timing(count=count, seconds=seconds) for count, seconds in (counts["claim"], counts["dispatch"]))
    return ServiceMetrics(
        runs={status: int(by_status[status].runs) if status in by_status else 0 for status in RunStatus},
        attempts={outcome: counts.get(f"attempts {outcome.value}", (0, 0.0))[0] for outcome in AttemptOutcome},
        cpus_at_work=sum(int(row.cpus) for row in at_work),
        gpus_at_work=sum(int(row.gpus) for row in at_work),
        device_seconds=counts["device"][1],
        claim=claim,
        dispatch=dispatch,
        export_backlog=int(waiting),
        export_lag_seconds=max(float(oldest or 0.0), 0.0),
    )
