"""`ExportOutbox`: what other systems still have to be told, written in the same transaction as what happened.

An entry is a reference (an experiment, perhaps a run), not a copy: the reader looks up the truth when it delivers.
Delivery is at least once; an entry stays until it is confirmed and is then deleted, so that the table holds what is
still to be told and nothing else. A failed one comes back after a growing pause.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from orchestrator.jobs import ExperimentId, RunId
from orchestrator.store.database import Database, plain_text
from orchestrator.store.tables import OutboxKind, experiments, is_deleted, outbox

FIRST_PAUSE_SECONDS = 1.0
"""After the first failure; doubles each time."""
LONGEST_PAUSE_SECONDS = 300.0
"""Later than five minutes helps no receiver that five minutes did not help."""

IS_TOLD = outbox.c.experiment_id.not_in(sa.select(experiments.c.id).where(is_deleted))
"""Of a deleted experiment nothing is told, unless it is restored."""


def retry_pause_seconds(failures: int) -> float:
    """How long a delivery waits that has failed so often before, and now once more."""
    return float(min(FIRST_PAUSE_SECONDS * 2 ** min(failures, 32), LONGEST_PAUSE_SECONDS))


@dataclass(frozen=True, kw_only=True)
class OutboxEntry:
    """One thing to tell."""

    id: int
    kind: OutboxKind
    experiment_id: ExperimentId
    run_id: RunId | None
    """Null where the whole experiment is meant."""
    created_at: float
    tries: int
    """Deliveries that failed so far."""


class ExportOutbox:
    """The undelivered entries. For one reader at a time; two would only deliver some twice."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def due(self, limit: int = 100) -> tuple[OutboxEntry, ...]:
        """The oldest entries that may be tried now."""
        columns = [outbox.c[name] for name in ("id", "kind", "experiment_id", "run_id", "created_at", "tries")]
        due = sa.or_(outbox.c.tries == 0, self._database.has_come(outbox.c.available_at, LONGEST_PAUSE_SECONDS))
        query = sa.select(*columns).where(due, IS_TOLD).order_by(outbox.c.id).limit(limit)
        with self._database.reading() as connection:
            return tuple(OutboxEntry(**row._mapping) for row in connection.execute(query))

    def confirm(self, ids: Sequence[int]) -> None:
        """Confirm entries; repeating it changes nothing."""
        if not ids:
            return
        with self._database.writing() as connection:
            connection.execute(sa.delete(outbox).where(outbox.c.id.in_(ids)))

    def postpone(self, id: int, error: str) -> None:
        """Put an entry back, to be tried again after 1, 2, 4, … seconds, at most five minutes."""
        here = outbox.c.id == id
        with self._database.writing() as connection:
            tries = connection.execute(sa.select(outbox.c.tries).where(here).with_for_update()).scalar_one_or_none()
            if tries is None:
                return
            later = self._database.now() + retry_pause_seconds(tries)
            again = sa.update(outbox).where(here)
            connection.execute(again.values(tries=tries + 1, last_error=plain_text(error), available_at=later))
