"""Messages to webhooks: an outbox of their own, from the end of a run to the message that was delivered.

    a run ends ─► an entry of the outbox, in the same transaction
               ─► a message for each webhook, once the experiment has ended
               ─► posted, again after growing pauses ─► delivered, or given up after a day

Every step may be repeated: a message's id follows from its content, so that the same end never makes a second one.
Where there is no webhook nothing is written.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import NotFoundError
from orchestrator.jobs import RunStatus
from orchestrator.records import AnyExperiment
from orchestrator.store.database import DAY_SECONDS, Database, insert
from orchestrator.store.outgoing.outbox import Outbox
from orchestrator.store.tables import OutboxKind, keys, outbox, webhook_messages, webhooks
from orchestrator.webhooks.records import DeliveryState, EndedExperiment, Message, MessageKind

GIVE_UP_SECONDS = DAY_SECONDS
"""A receiver that was away for a day is not waited for."""
KEPT_SECONDS = 30 * DAY_SECONDS
"""The time for which settled messages remain visible."""
ENDINGS_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class DueMessage:
    """A message that may be posted now."""

    id: str
    webhook_id: str
    url: str
    secret_hash: str
    body: str

    def __str__(self) -> str:
        return f"message {self.id} of webhook {self.webhook_id}"


def message_id(webhook_id: str, *parts: str) -> str:
    """Return the id of the message to a webhook about just this."""
    return "msg_" + hashlib.sha256("\n".join((webhook_id, *parts)).encode()).hexdigest()[:32]


def message_body(kind: MessageKind, unix_seconds: float, data: EndedExperiment | None) -> str:
    """Return the JSON of a message."""
    moment = datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Message(type=kind, timestamp=moment, data=data).model_dump_json()


def ended_experiment(experiment: AnyExperiment) -> EndedExperiment:
    """Return the message about an ended experiment."""
    states = experiment.counts.by_status
    failed = bool(states.get(RunStatus.FAILED))
    succeeded = 0 < experiment.counts.total == states.get(RunStatus.SUCCEEDED, 0)
    return EndedExperiment(
        id=experiment.id,
        name=experiment.name,
        kind=experiment.kind,
        outcome="succeeded" if succeeded else "failed" if failed else "cancelled",
        counts=experiment.counts,
        created_at=experiment.created_at,
        ended_at=experiment.ended_at or experiment.created_at,
    )


def insert_message(
    connection: Connection,
    id: str,
    webhook_id: str,
    kind: MessageKind,
    experiment_id: str | None,
    body: str,
    now: float,
) -> None:
    """Add a message; does nothing if it is there already, delivered or not."""
    row: dict[str, object] = {"id": id, "webhook_id": webhook_id, "kind": kind, "experiment_id": experiment_id}
    row |= {"body": body, "state": DeliveryState.WAITING, "created_at": now, "available_at": now}
    connection.execute(insert(connection, webhook_messages).values(row).on_conflict_do_nothing(index_elements=["id"]))


class Messages(Outbox):
    """The dispatcher's side. For one sender at a time: two would post some messages twice, under the same id."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, webhook_messages, webhook_messages.c.state == DeliveryState.WAITING)

    def write(self, look_up: Callable[[str], AnyExperiment]) -> int:
        """Turn ended runs into messages, where they were the last of their experiment; how many were looked at."""
        query = sa.select(outbox).where(outbox.c.kind == OutboxKind.EXPERIMENT_ENDED)
        with self._database.reading() as connection:
            endings = connection.execute(query.order_by(outbox.c.id).limit(ENDINGS_AT_ONCE)).all()
        for experiment_id in dict.fromkeys(row.experiment_id for row in endings):
            ended = None
            with suppress(NotFoundError):
                experiment = look_up(experiment_id)
                # One that goes on leaves word again at a later end.
                ended = ended_experiment(experiment) if experiment.counts.done() else None
            self._write(ended, [row for row in endings if row.experiment_id == experiment_id])
        return len(endings)

    def due(self, limit: int, but: Collection[str] = ()) -> tuple[DueMessage, ...]:
        """Return the oldest message of each webhook, `but` of these, that may be tried now: a receiver that hangs holds
        up no other."""
        rank = sa.func.row_number().over(
            partition_by=webhook_messages.c.webhook_id,
            order_by=(webhook_messages.c.available_at, webhook_messages.c.id),
        )
        joined = webhook_messages.join(webhooks)
        first = sa.select(webhook_messages.c.id, rank.label("rank")).select_from(joined)
        firsts = first.where(self.is_due(), self._has_valid_key()).subquery()
        columns = (*(webhook_messages.c[name] for name in ("id", "webhook_id", "body")), webhooks.c.url)
        query = sa.select(*columns, webhooks.c.secret_hash).select_from(
            joined.join(firsts, firsts.c.id == webhook_messages.c.id)
        )
        ordered = (
            query.where(firsts.c.rank == 1, webhooks.c.id.not_in(but))
            .order_by(webhook_messages.c.available_at)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return tuple(DueMessage(**row._mapping) for row in connection.execute(ordered))

    def confirm(self, id: str) -> None:
        """Mark a message as delivered; it can be looked at for a while."""
        values = {"state": DeliveryState.DELIVERED, "last_error": None, "settled_at": self._database.now()}
        with self._database.writing() as connection:
            connection.execute(
                sa.update(webhook_messages).where(webhook_messages.c.id == id, self._waits).values(values)
            )

    def tidy(self) -> None:
        """Give up what could not be delivered within a day, and forget what was settled long ago."""
        now = self._database.now()
        old = self._waits, webhook_messages.c.created_at < now - GIVE_UP_SECONDS
        with self._database.writing(durable=False) as connection:
            given_up = sa.update(webhook_messages).where(*old)
            connection.execute(given_up.values(state=DeliveryState.GIVEN_UP, settled_at=now))
            settled_long_ago = webhook_messages.c.settled_at < now - KEPT_SECONDS
            connection.execute(sa.delete(webhook_messages).where(settled_long_ago))

    def _write(self, ended: EndedExperiment | None, endings: Sequence[sa.Row[Any]]) -> None:
        """Write messages for the webhooks that the end concerns, instead of its entries."""
        with self._database.writing() as connection:
            if ended is not None:
                now = self._database.read_clock(connection)
                is_concerned = webhooks.c.experiment_id.is_(None) | (webhooks.c.experiment_id == ended.id)
                # What ended before a webhook was there is told only to the one that asked for just that experiment.
                # A sweep that was cancelled before its first trial has no other moment of its end.
                moment = ended.ended_at if ended.counts.total else max((row.created_at for row in endings), default=0.0)
                recent = (webhooks.c.created_at <= moment) & (moment > now - KEPT_SECONDS)
                since = recent | webhooks.c.experiment_id.is_not(None)
                body = message_body(MessageKind.EXPERIMENT_ENDED, ended.ended_at, ended)
                wanted = sa.select(webhooks.c.id).where(is_concerned, since, self._has_valid_key())
                # Locked against a removal, which would leave a message without its webhook.
                webhook_rows = connection.execute(wanted.with_for_update(read=True, key_share=True))
                for webhook_id in webhook_rows.scalars().all():
                    id = message_id(webhook_id, ended.id, repr(ended.ended_at))
                    insert_message(connection, id, webhook_id, MessageKind.EXPERIMENT_ENDED, ended.id, body, now)
            ended_runs = [row.id for row in endings]
            connection.execute(sa.delete(outbox).where(outbox.c.id.in_(ended_runs)))

    def _has_valid_key(self) -> sa.ColumnElement[bool]:
        """Select webhooks whose key, where they have one, opens something still."""
        invalid = keys.c.revoked_at.is_not(None) | (keys.c.expires_at <= self._database.now())
        return ~sa.exists().where(keys.c.id == webhooks.c.key_id, invalid)
