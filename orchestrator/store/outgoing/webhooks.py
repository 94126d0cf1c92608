"""`Webhooks`: which URLs are notified of ended experiments. Their messages are in `messages.py`."""

import secrets
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.store.database import Database
from orchestrator.store.ids import new_id, validate_id
from orchestrator.store.notifications import notify_webhooks
from orchestrator.store.outgoing.messages import insert_message, message_body, message_id
from orchestrator.store.reads import require_experiment
from orchestrator.store.run_rows import lock_experiment
from orchestrator.store.tables import keys, runs, webhook_messages, webhooks
from orchestrator.webhooks.policy import WebhookPolicy
from orchestrator.webhooks.records import (
    DeliveryRecord,
    DeliveryState,
    MessageKind,
    NewWebhook,
    WebhookRecord,
    WebhookRequest,
)
from orchestrator.webhooks.signing import SigningKey, fingerprint

DENY_ALL = WebhookPolicy()
MOST_OF_A_KEY = 100
"""Webhooks that one key may have, and a service without keys: more would make each end of an experiment a burst."""


class Webhooks:
    """The webhooks in a database. Thread-safe; every method may raise `StoreError`, and `NotFoundError` for a webhook
    that is not there."""

    def __init__(self, database: Database, folder: Path, policy: WebhookPolicy = DENY_ALL) -> None:
        """`folder`: the data folder, which has the key that signs."""
        self._database = database
        self._key = SigningKey(folder)
        self.policy = policy
        """Where webhooks may go."""

    def add(self, request: WebhookRequest, *, by: str | None = None) -> NewWebhook:
        """Add a webhook and return it with its secret.

        Raises `WebhookUrlError` for a URL that is not allowed, `NotFoundError` if there is no such experiment,
        `ConflictError` if there are too many.
        """
        self.policy.check(request.url)
        webhook_id = new_id()
        secret = self._key.secret(webhook_id, make=True)
        values = {
            "id": webhook_id,
            "url": request.url,
            "experiment_id": request.experiment_id,
            "key_id": by,
            "secret_hash": fingerprint(secret),
        }
        with self._database.writing() as connection:
            _require_room(connection, by)
            now = self._database.read_clock(connection)
            connection.execute(sa.insert(webhooks).values(created_at=now, **values))
            if request.experiment_id is not None:
                number = require_experiment(connection, request.experiment_id).number
                # Whoever ends its last run, or closes it, has committed before this or sees this webhook.
                of_it = sa.select(runs.c.id).where(runs.c.experiment_number == number, runs.c.ended_at.is_(None))
                connection.execute(of_it.order_by(runs.c.id).with_for_update(key_share=True))
                lock_experiment(connection, request.experiment_id)
                notify_webhooks(connection, [request.experiment_id], now)  # it may have ended already
            return NewWebhook(webhook=_record(connection, webhook_id), secret=secret)

    def list_webhooks(self) -> tuple[WebhookRecord, ...]:
        """Return all webhooks, the newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(_WEBHOOKS.order_by(webhooks.c.created_at.desc(), webhooks.c.id)).all()
        return tuple(WebhookRecord.model_validate(dict(row._mapping)) for row in rows)

    def remove(self, webhook_id: str) -> WebhookRecord:
        """Forget a webhook and its messages; returns it as it was."""
        with self._database.writing() as connection:
            # First of all, and so against a sender that adds a message meanwhile.
            query = sa.select(webhooks.c.id).where(webhooks.c.id == validate_id(webhook_id))
            connection.execute(query.with_for_update())
            record = _record(connection, webhook_id)
            connection.execute(sa.delete(webhook_messages).where(webhook_messages.c.webhook_id == record.id))
            connection.execute(sa.delete(webhooks).where(webhooks.c.id == record.id))
            return record

    def test(self, webhook_id: str) -> DeliveryRecord:
        """Have a test delivered; one that waits is the only one."""
        with self._database.writing() as connection:
            query = sa.select(webhooks.c.id).where(webhooks.c.id == validate_id(webhook_id))
            connection.execute(query.with_for_update(read=True, key_share=True))  # it may be about to be removed
            record = _record(connection, webhook_id)
            now = self._database.read_clock(connection)
            message = webhook_messages.c
            is_test = message.webhook_id == record.id, message.kind == MessageKind.TEST
            waiting = sa.select(message.id).where(*is_test, message.state == DeliveryState.WAITING)
            fresh = message_id(record.id, "test", secrets.token_hex(16))
            id = connection.execute(waiting).scalars().first() or fresh
            insert_message(
                connection, id, record.id, MessageKind.TEST, None, message_body(MessageKind.TEST, now, None), now
            )
            return _delivery(connection.execute(_MESSAGES.where(webhook_messages.c.id == id)).one()._mapping)

    def deliveries(self, webhook_id: str, *, limit: int = 50) -> tuple[DeliveryRecord, ...]:
        """Return deliveries: sent, waiting and abandoned, the newest first."""
        with self._database.reading() as connection:
            record = _record(connection, webhook_id)
            query = _MESSAGES.where(webhook_messages.c.webhook_id == record.id)
            newest = query.order_by(webhook_messages.c.created_at.desc(), webhook_messages.c.id).limit(limit)
            return tuple(_delivery(row._mapping) for row in connection.execute(newest))


def _require_room(connection: Connection, owner: str | None) -> None:
    """Raise `ConflictError` if that key has as many webhooks as it may have."""
    connection.execute(sa.select(keys.c.id).where(keys.c.id == owner).with_for_update())  # two at once pass one by one
    count = sa.select(sa.func.count()).where(webhooks.c.key_id.is_not_distinct_from(owner))
    if connection.execute(count).scalar_one() >= MOST_OF_A_KEY:
        raise ConflictError(f"this key has {MOST_OF_A_KEY} webhooks, the most that one may have; remove some first")


def _record(connection: Connection, webhook_id: str) -> WebhookRecord:
    row = connection.execute(_WEBHOOKS.where(webhooks.c.id == validate_id(webhook_id))).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no webhook {webhook_id!r}")
    return WebhookRecord.model_validate(dict(row._mapping))


def _delivery(row: sa.RowMapping) -> DeliveryRecord:
    values = dict(row)
    available_at = values.pop("available_at")
    next_try_at = available_at if values["state"] is DeliveryState.WAITING else None
    return DeliveryRecord.model_validate(values | {"next_try_at": next_try_at})


_OF_WEBHOOK = webhook_messages.c.webhook_id == webhooks.c.id
_STATE = webhook_messages.c.state
_COUNT, _NEWEST = sa.func.count(), sa.func.max(webhook_messages.c.settled_at)
_TRIED = (webhook_messages.c.tries > 0) | webhook_messages.c.settled_at.is_not(None)
_LAST_ERROR = (
    sa.select(webhook_messages.c.last_error)
    .where(_OF_WEBHOOK, _TRIED)
    .order_by(webhook_messages.c.created_at.desc(), webhook_messages.c.id)
    .limit(1)
)
_WEBHOOKS = sa.select(
    *[webhooks.c[name] for name in ("id", "url", "experiment_id", "key_id", "created_at")],
    sa.select(_COUNT).where(_OF_WEBHOOK, _STATE == DeliveryState.WAITING).scalar_subquery().label("waiting"),
    sa.select(_NEWEST).where(_OF_WEBHOOK, _STATE == DeliveryState.DELIVERED).scalar_subquery().label("delivered_at"),
    _LAST_ERROR.scalar_subquery().label("last_error"),
)
_MESSAGES = sa.select(*[column for column in webhook_messages.c if column.name != "body"])
