"""The one door through which a run changes its state.

    lock (`run_rows.py`)  →  decide (pure: `RunRow` → `RunRow`)  →  `move` (checked and logged)

A move notifies watchers, and notes in its experiment that a run has ended.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, LeaseLostError
from orchestrator.jobs import MOVES, TERMINAL, AttemptOutcome, LeasePolicy, RunStatus
from orchestrator.store.database import plain_text
from orchestrator.store.notifications import count_change, notify_runs_ended
from orchestrator.store.queue import growth
from orchestrator.store.run_rows import RunRow
from orchestrator.store.tables import attempts, events, runs

MAX_BACKOFF_SECONDS = 300.0
"""Doubling stops here: later than five minutes helps no machine that five minutes did not help."""
MAX_JITTER = 1.5
FIXED = frozenset({"id", "experiment_id", "stop_early", "last_event", "cpus", "gpus", "processes", "steps_total"})
WRITTEN = tuple(field.name for field in fields(RunRow) if field.name not in FIXED)
"""The columns that a move may set."""


def move(connection: Connection, changes: Iterable[tuple[RunRow, RunRow]], now: float) -> None:
    """Write the changes (before, after) of locked runs: guarded, with one event each, and a notice to others if final.

    Experiments whose runs have ended have news (`growth.py`), and those whose runs were revived may grow again.

    Raises `ConflictError` for a move that `jobs.MOVES` does not know, and `LeaseLostError` if a row is not what it
    was when it was locked (which a lock makes impossible; the guard is there to stay right if a lock is forgotten).
    """
    pairs = [(old_run, _set_moments(old_run, new_run, now)) for old_run, new_run in changes]
    if not pairs:
        return
    for old_run, new_run in pairs:
        if new_run.status not in MOVES[old_run.status]:
            raise ConflictError(f"run {old_run.id} is {old_run.status} and cannot become {new_run.status}")
    binds = [
        {
            "guard_id": old_run.id,
            "guard_status": old_run.status,
            "guard_attempt": old_run.attempt,
            "guard_event": old_run.last_event,
            **{f"new_{name}": getattr(new_run, name) for name in WRITTEN},
        }
        for old_run, new_run in pairs
    ]
    if connection.execute(_WRITE, binds).rowcount != len(pairs):
        raise LeaseLostError
    connection.execute(_INSERT_EVENT, [_event(old_run, new_run, now) for old_run, new_run in pairs])
    revived = {new_run.experiment_id for old_run, new_run in pairs if old_run.status in TERMINAL}
    ended = [new_run for _, new_run in pairs if new_run.status in TERMINAL]
    if ended:
        notify_runs_ended(connection, ended, now)
    if revived:
        growth.reopen(connection, revived, now)
    if ended:
        growth.note_ended(connection, ended)
    count_change(connection)


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """The end of a locked run's newest attempt."""

    run: RunRow
    outcome: AttemptOutcome
    message: str | None
    device_seconds: float | None = None
    """The seconds that it held its device; null if only the heartbeats know. The figure never falls."""


def end_attempts(connection: Connection, ends: Sequence[AttemptEnd], now: float) -> list[RunRow]:
    """Close the live attempts of locked runs, whose tokens open nothing from here on.

    Returns the runs with the device time that this adds; a `move` has to write them.
    """
    if not ends:
        return []
    rows = connection.execute(_HELD, {"ids": [end.run.id for end in ends]})
    recorded_seconds = {(row.run_id, row.attempt): float(row.device_seconds) for row in rows}
    held = [recorded_seconds[end.run.id, end.run.attempt] for end in ends]
    seconds = [max(held_seconds, end.device_seconds or 0.0) for held_seconds, end in zip(held, ends, strict=True)]
    binds = [
        {
            "guard_id": end.run.id,
            "guard_attempt": end.run.attempt,
            "new_ended_at": now,
            "new_outcome": end.outcome,
            "new_message": plain_text(end.message),
            "new_device_seconds": total,
        }
        for end, total in zip(ends, seconds, strict=True)
    ]
    if connection.execute(_END_ATTEMPT, binds).rowcount != len(ends):
        raise LeaseLostError
    return [
        replace(end.run, device_seconds=end.run.device_seconds + total - held_seconds)
        for end, total, held_seconds in zip(ends, seconds, held, strict=True)
    ]


def status_after_loss(run: RunRow, outcome: AttemptOutcome, reason: str, policy: LeasePolicy, now: float) -> RunRow:
    """Return a live run after an attempt that ended without a result: asked for, interrupted, or one failure more."""
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
    """Return the pause after so many failures: doubling, times 0.5 to 1.5 so that runs lost together spread out."""
    jitter = MAX_JITTER - secrets.randbelow(1_000_001) / 1_000_000
    return float(min(policy.backoff_seconds * 2 ** (failures - 1), MAX_BACKOFF_SECONDS) * jitter)


def longest_backoff_seconds(policy: LeasePolicy) -> float:
    """Return the longest pause of a run after a failure."""
    return float(min(policy.backoff_seconds * 2 ** (policy.max_failures - 1), MAX_BACKOFF_SECONDS) * MAX_JITTER)


def _set_moments(old_run: RunRow, new_run: RunRow, now: float) -> RunRow:
    """Return `new_run` with the times that follow from its status."""
    is_stopping = new_run.status in (RunStatus.CANCELLING, RunStatus.PAUSING)
    return replace(
        new_run,
        reason=plain_text(new_run.reason),
        ended_at=now if new_run.status in TERMINAL else None,
        stop_requested_at=(old_run.stop_requested_at or now) if is_stopping else None,
    )


def _event(old_run: RunRow, new_run: RunRow, now: float) -> dict[str, object]:
    return {
        "run_id": old_run.id,
        "sequence": old_run.last_event + 1,
        "at": now,
        "from_status": old_run.status,
        "to_status": new_run.status,
        "attempt": new_run.attempt,
        "reason": new_run.reason,
    }


# The statements of the hot path, built once: building one costs more than SQLite takes to carry it out.

_INSERT_EVENT = sa.insert(events)
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
