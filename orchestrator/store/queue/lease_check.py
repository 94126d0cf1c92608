"""Who holds a run: the check of a lease's token, under the lock of the run's row.

Only the hash of a token is stored. An unknown run, attempt or token all look the same from outside.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.jobs import LIVE, AttemptOutcome, RunStatus
from orchestrator.store.database import Database
from orchestrator.store.run_rows import RunRow, lock_ids
from orchestrator.store.tables import attempts
from worker.records.protocol import Command

COMMANDS = {RunStatus.CANCELLING: Command.CANCEL, RunStatus.PAUSING: Command.PAUSE}
"""What a state asks of the worker; every other live state asks it to continue."""


@dataclass(frozen=True, kw_only=True)
class HeldRun:
    """A run whose row is locked, seen by the attempt that claims to hold its lease."""

    run: RunRow
    now: float
    attempt: int
    live: bool
    """Whether this attempt holds the lease."""
    outcome: AttemptOutcome | None
    """How this attempt ended, if it has."""
    started_at: float | None
    """When it said hello, if it has."""
    device_seconds: float
    """How long it has told that it held its device."""
    last_batch: int
    """The newest batch of its series; -1 before the first."""


def token_hash(token: str) -> str:
    """What is stored of a lease's secret."""
    return hashlib.sha256(token.encode()).hexdigest()


def hold(
    database: Database, connection: Connection, claims: Sequence[tuple[str, int, str]], *, wait: bool = True
) -> list[HeldRun | None]:
    """Lock the runs and check each (run, attempt, token); None where the token does not open that attempt, and
    without `wait` where somebody else has locked the run."""
    found, now = lock_ids(database, connection, [run_id for run_id, _, _ in claims], wait=wait)
    # A statement of its own, after the lock: only then are the attempts' rows as new as the runs'.
    rows = connection.execute(_ATTEMPTS, {"ids": sorted(found)}).all() if found else []
    by_key = {(row.run_id, row.attempt): row for row in rows}
    return [
        _held_run(found[run_id], now, by_key[run_id, attempt])
        if (run_id, attempt) in by_key and _matches(by_key[run_id, attempt].token_hash, token)
        else None
        for run_id, attempt, token in claims
    ]


def opening(connection: Connection, claims: Sequence[tuple[str, int, str]]) -> list[bool]:
    """Whether each (run, attempt, token) opens that attempt, ended or not; nothing is locked."""
    rows = connection.execute(_ATTEMPTS, {"ids": sorted({run_id for run_id, _, _ in claims})}).all()
    stored = {(row.run_id, row.attempt): row.token_hash for row in rows}
    return [
        (run_id, attempt) in stored and _matches(stored[run_id, attempt], token) for run_id, attempt, token in claims
    ]


def _matches(stored: str, token: str) -> bool:
    return secrets.compare_digest(stored, token_hash(token))


def _held_run(run: RunRow, now: float, row: Any) -> HeldRun:
    return HeldRun(
        run=run,
        now=now,
        attempt=row.attempt,
        live=run.status in LIVE and run.attempt == row.attempt,
        outcome=row.outcome,
        started_at=row.started_at,
        device_seconds=row.device_seconds,
        last_batch=row.last_batch,
    )


_ATTEMPTS = sa.select(
    attempts.c.run_id,
    attempts.c.attempt,
    attempts.c.token_hash,
    attempts.c.outcome,
    attempts.c.started_at,
    attempts.c.device_seconds,
    attempts.c.last_batch,
).where(attempts.c.run_id.in_(sa.bindparam("ids", expanding=True)))
