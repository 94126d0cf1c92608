"""`ExportOutbox`: the entries for MLflow, written in the same transaction as what happened.

An entry is a reference (an experiment, perhaps a run), not a copy: the reader looks up the truth when it delivers.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from orchestrator.jobs import ExperimentId, RunId
from orchestrator.store.database import Database
from orchestrator.store.outgoing.outbox import Outbox
from orchestrator.store.tables import OutboxKind, experiments, is_deleted, outbox

IS_EXPORTED = sa.and_(
    outbox.c.kind.in_([OutboxKind.EXPERIMENT_SUBMITTED, OutboxKind.RUN_ENDED]),
    outbox.c.experiment_id.not_in(sa.select(experiments.c.id).where(is_deleted)),
)
"""Entries for the trackers. A deleted experiment is not exported, unless it is restored."""


@dataclass(frozen=True, kw_only=True)
class OutboxEntry:
    """A change to export."""

    id: int
    kind: OutboxKind
    experiment_id: ExperimentId
    run_id: RunId | None
    """Null where the whole experiment is meant."""

    def __str__(self) -> str:
        return f"{self.kind} {self.run_id or self.experiment_id}"


class ExportOutbox(Outbox):
    """The entries that are not exported yet."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, outbox, IS_EXPORTED)

    def due(self, limit: int = 100) -> tuple[OutboxEntry, ...]:
        """Return the oldest entries that may be tried now."""
        columns = [outbox.c[name] for name in ("id", "kind", "experiment_id", "run_id")]
        query = sa.select(*columns).where(self.is_due()).order_by(outbox.c.id).limit(limit)
        with self._database.reading() as connection:
            return tuple(OutboxEntry(**row._mapping) for row in connection.execute(query))
