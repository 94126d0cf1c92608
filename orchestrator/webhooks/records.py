"""Webhooks as records: what is asked for, the messages to a URL, and the outcome of each delivery."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from orchestrator.records import StateCounts
from worker.records.result import Record


class WebhookRequest(Record):
    """A webhook to be added."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"url": "https://hooks.example.org/bench"}]})

    url: Annotated[str, Field(min_length=1, max_length=2_000, json_schema_extra={"pattern": "^https?://"})]
    """The URL to post to; the operator's setting `webhook_urls` says which are allowed."""
    experiment_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    """The experiment whose end is announced; null: every one that ends from now on."""


class WebhookRecord(Record):
    """A webhook; its secret is known to who added it, and is kept nowhere."""

    id: str
    url: str
    experiment_id: str | None
    key_id: str | None
    """The key that added it: once that is revoked or expired, nothing is delivered."""
    created_at: float
    waiting: int = 0
    """Messages that are not delivered yet."""
    delivered_at: float | None = None
    """The time at which the newest message was delivered."""
    last_error: str | None = None
    """The reason why the newest message could not be delivered; null if it was, or has not been tried."""


class NewWebhook(Record):
    """A webhook that was just added."""

    webhook: WebhookRecord
    secret: str
    """`whsec_` and the base64 of what signs its messages; shown this once."""


class DeliveryState(StrEnum):
    """The state of a message."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    """Answered with a status of 200 to 299."""
    GIVEN_UP = "given_up"
    """Not delivered within a day."""


class MessageKind(StrEnum):
    """The subject of a message."""

    EXPERIMENT_ENDED = "experiment.ended"
    TEST = "webhook.test"


class DeliveryRecord(Record):
    """A message to a webhook and its state."""

    id: str
    """`webhook-id` of every try: a receiver that has seen it has had the message."""
    webhook_id: str
    kind: MessageKind
    experiment_id: str | None
    state: DeliveryState
    tries: int
    """The number of failed tries."""
    created_at: float
    next_try_at: float | None
    """Null where none follows."""
    settled_at: float | None
    """The time of its delivery, or of giving up."""
    last_error: str | None


class EndedExperiment(Record):
    """The content of a message of the kind `experiment.ended`."""

    id: str
    name: str
    kind: str
    outcome: Literal["succeeded", "failed", "cancelled"]
    """`succeeded`: every run; `failed`: one at least; `cancelled`: the rest."""
    counts: StateCounts
    created_at: float
    ended_at: float


class Message(Record):
    """The body of a post, as JSON."""

    type: MessageKind
    timestamp: str
    """The time of the event: ISO 8601, UTC."""
    data: EndedExperiment | None
    """Null in a test."""
