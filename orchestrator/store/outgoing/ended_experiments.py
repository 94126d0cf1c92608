"""The word that is left for webhooks when runs end: written in that transaction, and only where a webhook wants it."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.store.tables import webhook_endings, webhooks


def note_endings(connection: Connection, experiment_ids: Iterable[str], now: float) -> None:
    """Leave word that these experiments may have ended."""
    connection.execute(_NOTE, [{"this": id, "now": now} for id in dict.fromkeys(experiment_ids)])


_THIS = sa.bindparam("this", type_=sa.Text)
_WANTED = sa.exists().where(webhooks.c.experiment_id.is_(None) | (webhooks.c.experiment_id == _THIS))
_NOTE = sa.insert(webhook_endings).from_select(
    ["experiment_id", "created_at"], sa.select(_THIS, sa.bindparam("now", type_=sa.Double)).where(_WANTED)
)
"""Built once, for it is on the hot path."""
