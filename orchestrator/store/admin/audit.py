"""`AuditLog`: who changed what, when, from where, and what came of it. Lines are added and grow old, nothing else.

A line is in the database before the answer that it is about leaves the service.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from orchestrator.keys import AuditRecord
from orchestrator.store.database import DAY_SECONDS, Database
from orchestrator.store.tables import audit, keys

MOST_TEXT = 500
"""The most characters that are kept of a target or an address."""


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """The line of the audit log about a request."""

    key_id: str | None
    address: str
    action: str
    target: str
    outcome: int


class AuditLog:
    """The audit log in a database. Thread-safe; every method may raise `StoreError`."""

    def __init__(self, database: Database, *, keep_days: float = 365.0) -> None:
        self._database = database
        self.keep_days = keep_days
        """Older lines are deleted when one is added."""

    def add(self, *lines: AuditLine) -> None:
        """Store requests, in one transaction."""
        # Not forced to disk by itself: what it tells of has been, and a killed process loses nothing.
        with self._database.writing(durable=False) as connection:
            now = self._database.read_clock(connection)
            rows = [
                vars(line) | {name: _printable(getattr(line, name)) for name in ("address", "action", "target")}
                for line in lines
            ]
            connection.execute(sa.insert(audit), [{"at": now, **row} for row in rows])
            connection.execute(sa.delete(audit).where(audit.c.at < now - self.keep_days * DAY_SECONDS))

    def page(self, *, limit: int, before: int | None = None, key_id: str | None = None) -> tuple[AuditRecord, ...]:
        """Return lines, the newest first; `before` is the number of the last one already seen."""
        query = sa.select(audit, keys.c.label).select_from(audit.outerjoin(keys, keys.c.id == audit.c.key_id))
        if before is not None:
            query = query.where(audit.c.number < before)
        if key_id is not None:
            query = query.where(audit.c.key_id == key_id)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(audit.c.number.desc()).limit(limit))
            return tuple(AuditRecord(**row._mapping) for row in rows)


def _printable(text: str) -> str:
    """Return text as both databases keep it and terminals can show it."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)[:MOST_TEXT]
