"""Quotas: how many runs of a key's experiments are at work, and how many device-hours they have had in a day.

An attempt is charged to the key that submitted its experiment. Quotas are looked at in the transaction that claims,
under a lock of the keys' rows, so that two dispatchers at once cannot pass them together. What is at work when the
device-hours are used up goes on; it is by so much that a day can be longer than its quota.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.records import SECONDS_PER_HOUR
from orchestrator.store.database import DAY_SECONDS, Database
from orchestrator.store.run_rows import RunRow, lock
from orchestrator.store.tables import attempts, experiments, keys, runs
from worker.words import pluralize


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of a key's experiments."""

    runs: int
    device_hours: float


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A key's limits, and what is used of them."""

    key_id: str
    label: str
    runs_at_once: int | None
    device_hours_a_day: float | None
    used: Usage

    def runs_left(self) -> int | None:
        """Return the number of further runs that may start now; None if there is no limit."""
        if self.device_hours_a_day is not None and self.used.device_hours >= self.device_hours_a_day:
            return 0
        return None if self.runs_at_once is None else max(self.runs_at_once - self.used.runs, 0)

    def reason(self) -> str:
        """Return the reason why its runs wait, if none may start."""
        if self.device_hours_a_day is not None and self.used.device_hours >= self.device_hours_a_day:
            used = f"{self.used.device_hours:.4g} of {self.device_hours_a_day:.4g} device-hours of 24 hours are used"
            return f"waits for the quota of the key {self.label!r}: {used}"
        at_once = pluralize(self.runs_at_once or 0, "run")
        return f"waits for the quota of the key {self.label!r}: {self.used.runs} of {at_once} at work"


def quotas(connection: Connection, now: float) -> dict[str, Quota]:
    """Return every quota by key."""
    rows = connection.execute(_LIMITED).all()
    used = usage(connection, [row.id for row in rows], now)
    return {
        row.id: Quota(
            key_id=row.id,
            label=row.label,
            runs_at_once=row.runs_at_once,
            device_hours_a_day=row.device_hours_a_day,
            used=used[row.id],
        )
        for row in rows
    }


def usage(connection: Connection, key_ids: Sequence[str], now: float) -> dict[str, Usage]:
    """Return the usage of each key's experiments: runs at work, and the device-hours of attempts that ended within a
    day or are at work."""
    if not key_ids:
        return {}
    live = sa.func.sum(sa.case((attempts.c.ended_at.is_(None), 1), else_=0))
    query = sa.select(attempts.c.key_id, live.label("runs"), sa.func.sum(attempts.c.device_seconds).label("seconds"))
    recent = sa.or_(attempts.c.ended_at.is_(None), attempts.c.ended_at > now - DAY_SECONDS)
    rows = connection.execute(query.where(attempts.c.key_id.in_(key_ids), recent).group_by(attempts.c.key_id))
    usage_by_key = {row.key_id: Usage(runs=int(row.runs), device_hours=row.seconds / SECONDS_PER_HOUR) for row in rows}
    return {key_id: usage_by_key.get(key_id, Usage(runs=0, device_hours=0.0)) for key_id in key_ids}


def keys_of(connection: Connection, run_rows: Iterable[RunRow]) -> dict[str, str | None]:
    """Return the key of each run, by the id of its experiment."""
    rows = connection.execute(_KEYS_OF, {"ids": sorted({run.experiment_id for run in run_rows})})
    return {row.id: row.key_id for row in rows}


def lock_within_quotas(
    database: Database, connection: Connection, due: sa.Select[Any], limit: int
) -> tuple[tuple[RunRow, ...], float]:
    """Lock the head of `due`, at most `limit` runs, passing over those that no quota has room for; and the time."""
    # Nobody else's claim passes here until this transaction ends; what is read after it is what the last one left.
    if not connection.execute(_LOCK_LIMITED).all():
        return lock(database, connection, due.limit(limit), wait=False)
    quotas_by_key = quotas(connection, database.read_clock(connection))
    room_by_key = {key_id: count for key_id, quota in quotas_by_key.items() if (count := quota.runs_left()) is not None}
    full, query = {key_id for key_id, count in room_by_key.items() if count == 0}, due
    chosen: list[RunRow] = []
    while True:
        if full:
            is_chosen = runs.c.id.in_([run.id for run in chosen])
            full_experiments = sa.select(experiments.c.number).where(experiments.c.key_id.in_(sorted(full)))
            query = due.where(sa.or_(is_chosen, runs.c.experiment_number.not_in(full_experiments)))
        locked, now = lock(database, connection, query.limit(limit), wait=False)
        key_of, begun, refused = keys_of(connection, locked), Counter[str](), set[str]()
        chosen = []
        for run in locked:
            key_id = key_of[run.experiment_id]
            if key_id is not None and key_id in room_by_key and begun[key_id] == room_by_key[key_id]:
                refused.add(key_id)
                continue
            chosen.append(run)
            begun.update([key_id] if key_id is not None else [])
        # Where all were taken there is room for nothing more; where less than `limit` were there, nothing is behind.
        if not refused or len(locked) < limit:
            return tuple(chosen), now
        full |= refused


# Statements of every claim, built once.

_LIMITED = (
    sa.select(keys.c.id, keys.c.label, keys.c.runs_at_once, keys.c.device_hours_a_day)
    .where(sa.or_(keys.c.runs_at_once.is_not(None), keys.c.device_hours_a_day.is_not(None)))
    .order_by(keys.c.id)
)
_LOCK_LIMITED = _LIMITED.with_for_update()
_KEYS_OF = sa.select(experiments.c.id, experiments.c.key_id).where(
    experiments.c.id.in_(sa.bindparam("ids", expanding=True))
)
