"""The one door through which a run changes its state.

    lock (the row, and the database's time)  →  decide (pure: `RunRow` → `RunRow`)  →  `move` (checked and logged)

Who holds the lock of a run's row may change everything of that run: its attempts, series and result. Nothing else may.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, LeaseLostError
from orchestrator.jobs import MOVES, TERMINAL, AttemptOutcome, ExperimentId, LeasePolicy, Limit, RunId, RunStatus
from orchestrator.store.database import Database
from orchestrator.store.outgoing.ended_experiments import note_endings
from orchestrator.store.tables import (
    CHANGE_COUNTERS,
    OutboxKind,
    attempts,
    change_counters,
    events,
    outbox,
    runs,
)

MAX_BACKOFF_SECONDS = 300.0
"""Doubling stops here: later than five minutes helps no machine that five minutes did not help."""
MAX_JITTER = 1.5
MAX_TEXT = 4_000
"""Reasons and messages are cut here; a log is the place for more."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """What the queue knows of a run; the names are the columns'."""

    id: RunId
    experiment_id: ExperimentId
    status: RunStatus
    reason: str | None
    attempt: int
    failures: int
    available_at: float
    stop_requested_at: float | None
    max_seconds_from: float
    deadline_at: float | None
    limit_reached: Limit | None
    micro_batch_sequences: int | None
    trace_parent: str | None
    stop_early: bool | None
    """Whether its sweep wants it to finish with what there is; null for runs that no sweep may stop."""
    started_at: float | None
    ended_at: float | None
    last_event: int
    cpus: int
    gpus: int
    processes: int
    step: int
    steps_total: int
    device_seconds: float
    last_train_loss: float | None
    last_val_loss: float | None
    tokens_per_second: float | None


COLUMNS = tuple(runs.c[field.name] for field in fields(RunRow))
WRITTEN = (
    "status",
    "reason",
    "attempt",
    "failures",
    "available_at",
    "stop_requested_at",
    "max_seconds_from",
    "deadline_at",
    "limit_reached",
    "micro_batch_sequences",
    "started_at",
    "ended_at",
    "step",
    "device_seconds",
    "last_train_loss",
    "last_val_loss",
    "tokens_per_second",
)
"""The columns that a move may set."""


def select_runs() -> sa.Select[Any]:
    """The query of `RunRow`s, to be narrowed."""
    return sa.select(*COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Locked:
    """Runs whose rows are ours until the transaction ends, and the database's time at that moment."""

    runs: tuple[RunRow, ...]
    now: float


BY_ID = select_runs().where(runs.c.id.in_(sa.bindparam("ids", expanding=True))).order_by(runs.c.id)
"""In the order of the ids: two transactions that lock several runs must take them in the same order."""
_LOCK_BY_ID = BY_ID.with_for_update(of=runs)
_LOCK_FREE_BY_ID = BY_ID.with_for_update(of=runs, skip_locked=True)


def lock(
    database: Database,
    connection: Connection,
    query: sa.Select[Any],
    parameters: Mapping[str, object] | None = None,
    *,
    wait: bool = True,
) -> Locked:
    """Lock the runs that `query`, made by `select_runs()`, finds; without `wait` only those that nobody has locked."""
    # PostgreSQL looks at a row of `runs` again after it has waited for it, so what is read here is the newest truth;
    # rows of joined tables may be older and have to be read again.
    rows = connection.execute(query.with_for_update(of=runs, skip_locked=not wait), parameters or {}).all()
    return Locked(runs=tuple(RunRow(**row._mapping) for row in rows), now=database.read_clock(connection))


def lock_ids(
    database: Database, connection: Connection, ids: Iterable[str], *, wait: bool = True
) -> tuple[dict[str, RunRow], float]:
    """Lock the runs of these ids: those that exist (without `wait`: those free) and the database's time."""
    wanted = sorted({known_id(id) for id in ids})
    rows = connection.execute(_LOCK_BY_ID if wait else _LOCK_FREE_BY_ID, {"ids": wanted}).all()
    return {row.id: RunRow(**row._mapping) for row in rows}, database.read_clock(connection)


def lock_run(database: Database, connection: Connection, run_id: str) -> tuple[RunRow, float] | None:
    """Lock one run: its row and the database's time; None where there is no such run."""
    found, now = lock_ids(database, connection, [run_id])
    return (found[run_id], now) if run_id in found else None


def move(connection: Connection, changes: Iterable[tuple[RunRow, RunRow]], now: float) -> None:
    """Write the changes (before, after) of locked runs: guarded, with one event each, and told to the outbox if final.

    Raises `ConflictError` for a move that `jobs.MOVES` does not know, and `LeaseLostError` where a row is not what it
    was when it was locked (which a lock makes impossible; the guard is there to stay right if a lock is forgotten).
    """
    pairs = [(before, _stamped(before, after, now)) for before, after in changes]
    if not pairs:
        return
    for before, after in pairs:
        if after.status not in MOVES[before.status]:
            raise ConflictError(f"run {before.id} is {before.status} and cannot become {after.status}")
    _write(connection, pairs)
    connection.execute(_INSERT_EVENT, [_event(before, after, now) for before, after in pairs])
    ended = [_ended_entry(after, now) for _, after in pairs if after.status in TERMINAL]
    if ended:
        connection.execute(_INSERT_ENTRY, ended)
        note_endings(connection, (after.experiment_id for _, after in pairs if after.status in TERMINAL), now)
    _grow(connection, pairs, now)
    count_change(connection)


def count_change(connection: Connection) -> None:
    """Tell watchers that something visible changed: once a transaction, as its last statement.

    Two such rows locked by one transaction, in any order, would deadlock with another's on PostgreSQL.
    """
    connection.execute(_COUNT_CHANGE, {"chosen": secrets.randbelow(CHANGE_COUNTERS)})


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """How the newest attempt of a locked run ends."""

    run: RunRow
    outcome: AttemptOutcome
    message: str | None
    device_seconds: float | None = None
    """How long it held its device; null where nobody knows more than the heartbeats told. The figure never falls."""


def end_attempts(connection: Connection, ends: Sequence[AttemptEnd], now: float) -> list[RunRow]:
    """Close the live attempts of locked runs, whose tokens open nothing from here on.

    Returns the runs with the device time that this adds; a `move` has to write them.
    """
    if not ends:
        return []
    rows = connection.execute(_HELD, {"ids": [end.run.id for end in ends]})
    before = {(row.run_id, row.attempt): float(row.device_seconds) for row in rows}
    held = [before[end.run.id, end.run.attempt] for end in ends]
    seconds = [max(known, end.device_seconds or 0.0) for known, end in zip(held, ends, strict=True)]
    done = connection.execute(
        _END_ATTEMPT, [_attempt_binds(end, total, now) for end, total in zip(ends, seconds, strict=True)]
    )
    if done.rowcount != len(ends):
        raise LeaseLostError
    return [
        replace(end.run, device_seconds=end.run.device_seconds + total - known)
        for end, total, known in zip(ends, seconds, held, strict=True)
    ]


def after_loss(run: RunRow, outcome: AttemptOutcome, reason: str, policy: LeasePolicy, now: float) -> RunRow:
    """Where a live run goes when its attempt is over without a result: wished for, interrupted, or one failure more."""
    if run.status is RunStatus.CANCELLING:
        return replace(run, status=RunStatus.CANCELLED, reason=run.reason if run.limit_reached else "cancelled")
    if run.status is RunStatus.PAUSING:
        return replace(run, status=RunStatus.PAUSED, reason="paused")
    if outcome is AttemptOutcome.INTERRUPTED:
        return replace(run, status=RunStatus.QUEUED, reason=reason, available_at=now)
    failures = run.failures + 1
    if failures >= policy.max_failures:
        verdict = f"gave up after {failures} failed attempts; the last one: {reason}"
        return replace(run, status=RunStatus.FAILED, reason=verdict, failures=failures)
    later = now + backoff_seconds(policy, failures)
    return replace(run, status=RunStatus.RETRY_WAIT, reason=reason, failures=failures, available_at=later)


def backoff_seconds(policy: LeasePolicy, failures: int) -> float:
    """How long to wait after so many failures: doubling, times 0.5 to 1.5 so that runs lost together spread out."""
    jitter = MAX_JITTER - secrets.randbelow(1_000_001) / 1_000_000
    return float(min(policy.backoff_seconds * 2 ** (failures - 1), MAX_BACKOFF_SECONDS) * jitter)


def longest_backoff_seconds(policy: LeasePolicy) -> float:
    """No run waits longer than this after a failure."""
    return float(min(policy.backoff_seconds * 2 ** (policy.max_failures - 1), MAX_BACKOFF_SECONDS) * MAX_JITTER)


def plain_text(text: str | None) -> str | None:
    """Text as both databases can keep it: bounded, without the NUL that PostgreSQL refuses."""
    return None if text is None else text.replace("\x00", "\ufffd")[:MAX_TEXT]


def known_id(text: str) -> str:
    """An id from outside as the database may be asked for it: PostgreSQL refuses NUL, and none of our ids has one."""
    return text.replace("\x00", "\ufffd")


def _stamped(before: RunRow, after: RunRow, now: float) -> RunRow:
    """`after` with the moments that follow from its status."""
    asked = after.status in (RunStatus.CANCELLING, RunStatus.PAUSING)
    return replace(
        after,
        reason=plain_text(after.reason),
        ended_at=now if after.status in TERMINAL else None,
        stop_requested_at=(before.stop_requested_at or now) if asked else None,
    )


def _write(connection: Connection, pairs: Sequence[tuple[RunRow, RunRow]]) -> None:
    written = connection.execute(_WRITE, [_binds(before, after) for before, after in pairs])
    if written.rowcount != len(pairs):
        raise LeaseLostError


def _attempt_binds(end: AttemptEnd, device_seconds: float, now: float) -> dict[str, object]:
    return {
        "guard_id": end.run.id,
        "guard_attempt": end.run.attempt,
        "new_ended_at": now,
        "new_outcome": end.outcome,
        "new_message": plain_text(end.message),
        "new_device_seconds": device_seconds,
    }


def _binds(before: RunRow, after: RunRow) -> dict[str, object]:
    return {
        "guard_id": before.id,
        "guard_status": before.status,
        "guard_attempt": before.attempt,
        "guard_event": before.last_event,
        **{f"new_{name}": getattr(after, name) for name in WRITTEN},
    }


def _event(before: RunRow, after: RunRow, now: float) -> dict[str, object]:
    return {
        "run_id": before.id,
        "sequence": before.last_event + 1,
        "at": now,
        "from_status": before.status,
        "to_status": after.status,
        "attempt": after.attempt,
        "reason": after.reason,
    }


def _grow(connection: Connection, pairs: Sequence[tuple[RunRow, RunRow]], now: float) -> None:
    """Queue what follows from the runs that have just ended; let it follow again from those that were revived."""
    from orchestrator.store import follow_up_runs  # it submits runs, and submitting counts changes through this file

    revived = {after.experiment_id for before, after in pairs if before.status in TERMINAL}
    if revived:
        follow_up_runs.reopen(connection, revived, now)
    ended = [after for _, after in pairs if after.status in TERMINAL]
    if ended:
        follow_up_runs.grow(connection, ended, now)


def _ended_entry(run: RunRow, now: float) -> dict[str, object]:
    return {
        "kind": OutboxKind.RUN_ENDED,
        "experiment_id": run.experiment_id,
        "run_id": run.id,
        "created_at": now,
        "available_at": now,
    }


# The statements of the hot path, built once: building one costs more than SQLite takes to carry it out.

_INSERT_EVENT = sa.insert(events)
_INSERT_ENTRY = sa.insert(outbox)
_COUNT_CHANGE = (
    sa.update(change_counters)
    .where(change_counters.c.shard == sa.bindparam("chosen"))
    .values(value=change_counters.c.value + 1)
)
_HELD = sa.select(attempts.c.run_id, attempts.c.attempt, attempts.c.device_seconds).where(
    attempts.c.run_id.in_(sa.bindparam("ids", expanding=True)), attempts.c.ended_at.is_(None)
)
_END_ATTEMPT = (
    sa.update(attempts)
    .where(
        attempts.c.run_id == sa.bindparam("guard_id"),
        attempts.c.attempt == sa.bindparam("guard_attempt"),
        attempts.c.ended_at.is_(None),
    )
    .values({name: sa.bindparam(f"new_{name}") for name in ("ended_at", "outcome", "message", "device_seconds")})
)
_WRITE = (
    sa.update(runs)
    .where(
        runs.c.id == sa.bindparam("guard_id"),
        runs.c.status == sa.bindparam("guard_status"),
        runs.c.attempt == sa.bindparam("guard_attempt"),
        runs.c.last_event == sa.bindparam("guard_event"),
    )
    .values(
        {name: sa.bindparam(f"new_{name}") for name in WRITTEN}
        | {"last_event": runs.c.last_event + 1, "version": runs.c.version + 1}
    )
)
