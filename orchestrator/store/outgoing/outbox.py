"""`Outbox`: entries of a table that wait to be delivered, and how each is.

    written with what happened ─► due ─► delivered: confirmed            (MLflow's entries, webhooks' messages)
                                   ▲ └─► failed: postponed ─┐
                                   └──── a growing pause ◄──┘

Delivery is at least once: an entry waits until it is confirmed.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog

from orchestrator.store.database import Database, plain_text
from orchestrator.store.leadership import LostLeadershipError

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 1.0
"""The pause after the first failure; it doubles each time."""
LONGEST_PAUSE_SECONDS = 300.0
"""Later than five minutes helps no receiver that five minutes did not help."""


class Outbox:
    """The entries of one table that wait. For one reader at a time; two would only deliver some twice."""

    def __init__(self, database: Database, table: sa.Table, waits: sa.ColumnElement[bool]) -> None:
        """`table` has the columns `id`, `tries`, `available_at` and `last_error`; `waits` says which rows are to be
        delivered."""
        self._database, self._table, self._waits = database, table, waits

    def is_due(self) -> sa.ColumnElement[bool]:
        """Return whether an entry may be tried now."""
        has_come = self._database.has_come(self._table.c.available_at, LONGEST_PAUSE_SECONDS)
        return sa.and_(self._waits, sa.or_(self._table.c.tries == 0, has_come))

    def confirm(self, id: Any) -> None:
        """Delete a delivered entry; repeating it changes nothing."""
        with self._database.writing() as connection:
            connection.execute(sa.delete(self._table).where(self._table.c.id == id))

    def postpone(self, id: Any, error: str) -> None:
        """Put an entry back, to be tried again after 1, 2, 4, … seconds, at most five minutes."""
        entry = self._table.c.id == id, self._waits
        with self._database.writing() as connection:
            tries = connection.execute(sa.select(self._table.c.tries).where(*entry).with_for_update()).scalar()
            if tries is not None:
                pause = min(FIRST_PAUSE_SECONDS * 2 ** min(tries, 32), LONGEST_PAUSE_SECONDS)
                values = {"tries": tries + 1, "available_at": self._database.read_clock(connection) + pause}
                change = sa.update(self._table).where(*entry).values(last_error=plain_text(error), **values)
                connection.execute(change)

    def deliver(self, id: Any, entry: object, send: Callable[[], object]) -> bool:
        """Send one entry, whose text names it in the log, and note at once what became of it; False if that failed,
        and it waits to be tried again. Raises `LostLeadershipError`. Thread-safe as far as `send` is."""
        fault = None
        try:
            send()
        except LostLeadershipError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the entry waits and is tried again
            log.warning("not delivered, will be tried again", entry=str(entry), error=str(error))
            fault = str(error)
        try:
            if fault is None:
                self.confirm(id)
            else:
                self.postpone(id, fault)
        except Exception as error:  # noqa: BLE001 - a database that is away: the entry is delivered again
            log.warning("a delivery cannot be noted, will be repeated", entry=str(entry), error=str(error))
            return False
        return fault is None
