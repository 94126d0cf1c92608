"""Notifications of a change, in the transaction that makes it: to watchers, other systems, webhooks.

    count_change                            watchers: pages and streams look again
    notify_submitted, notify_runs_ended     the outbox, which exporters read (`outgoing/exports.py`)
    notify_closed                           all of them
    notify_webhooks                         webhooks (`outgoing/messages.py`), and only where one wants it

A notification is a reference, not a copy: whoever reads it looks up the truth.
"""

import secrets
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.jobs import ExperimentId
from orchestrator.store.run_rows import RunRow
from orchestrator.store.tables import CHANGE_COUNTERS, OutboxKind, change_counters, outbox, webhooks


def count_change(connection: Connection) -> None:
    """Tell watchers that something visible changed: once a transaction, as its last statement.

    Two such rows locked by one transaction, in any order, would deadlock with another's on PostgreSQL.
    """
    connection.execute(_COUNT_CHANGE, {"chosen": secrets.randbelow(CHANGE_COUNTERS)})


def notify_submitted(connection: Connection, experiment_id: ExperimentId, now: float) -> None:
    """Leave word of an experiment that is new, or has changed as a whole, in the outbox."""
    entry = {"kind": OutboxKind.EXPERIMENT_SUBMITTED, "created_at": now, "available_at": now}
    connection.execute(_INSERT_ENTRIES, {**entry, "experiment_id": experiment_id})


def notify_runs_ended(connection: Connection, ended: Sequence[RunRow], now: float) -> None:
    """Leave word of runs that have just ended, in the outbox and for webhooks."""
    entry = {"kind": OutboxKind.RUN_ENDED, "created_at": now, "available_at": now}
    connection.execute(
        _INSERT_ENTRIES, [{**entry, "experiment_id": run.experiment_id, "run_id": run.id} for run in ended]
    )
    notify_webhooks(connection, (run.experiment_id for run in ended), now)


def notify_closed(connection: Connection, experiment_id: ExperimentId, now: float) -> None:
    """Notify watchers that an experiment gets no more runs: no run's end would say that it is over."""
    notify_submitted(connection, experiment_id, now)
    notify_webhooks(connection, [experiment_id], now)
    count_change(connection)


def notify_webhooks(connection: Connection, experiment_ids: Iterable[str], now: float) -> None:
    """Leave word that these experiments may have ended."""
    connection.execute(_NOTE, [{"this": id, "now": now} for id in dict.fromkeys(experiment_ids)])


# The statements, built once: they are on the hot path.

_COUNT_CHANGE = (
    sa.update(change_counters)
    .where(change_counters.c.shard == sa.bindparam("chosen"))
    .values(value=change_counters.c.value + 1)
)
_INSERT_ENTRIES = sa.insert(outbox)
_THIS = sa.bindparam("this", type_=sa.Text)
_WANTED = sa.exists().where(webhooks.c.experiment_id.is_(None) | (webhooks.c.experiment_id == _THIS))
_NOW = sa.bindparam("now", type_=sa.Double)
_NOTE = sa.insert(outbox).from_select(
    ["kind", "experiment_id", "created_at", "available_at"],
    sa.select(sa.literal(OutboxKind.EXPERIMENT_ENDED, outbox.c.kind.type), _THIS, _NOW, _NOW).where(_WANTED),
)
