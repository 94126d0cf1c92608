"""What the client has for webhooks: add, list, remove, try, and what was delivered."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import uuid4

import httpx2

from api.client_answers import read
from api.client_values import segment
from api.pages import Page
from orchestrator.webhook_records import DeliveryRecord, NewWebhook, WebhookRecord, WebhookRequest

Answer = TypeVar("Answer")


class WebhookVerbs(ABC):
    """The verbs of this file; `Client` brings what they ask the service with."""

    _http: httpx2.Client
    _retries: int

    @abstractmethod
    def _get(
        self, path: str, answer: type[Answer], parameters: Mapping[str, str | int | list[str] | list[int]] | None = None
    ) -> Answer:
        """The record at a path of the service."""

    @abstractmethod
    def _send(self, request: Callable[[], httpx2.Response], tries: int) -> httpx2.Response:
        """The answer to a request that may be sent several times."""

    def add_webhook(self, wanted: WebhookRequest, key: str | None = None) -> NewWebhook:
        """Have a URL told of ended experiments; the secret that signs what it is told is in the answer alone. An
        earlier call with the same `key` is answered as it was."""
        headers = {"Idempotency-Key": key or uuid4().hex, "Content-Type": "application/json"}
        content = wanted.model_dump_json()
        response = self._send(
            lambda: self._http.post("/v1/webhooks", content=content, headers=headers), tries=self._retries + 1
        )
        return read(response, NewWebhook)

    def webhooks(self) -> tuple[WebhookRecord, ...]:
        """All webhooks, the newest first."""
        return self._get("/v1/webhooks", Page[WebhookRecord]).items

    def webhook(self, webhook_id: str) -> WebhookRecord:
        """One webhook."""
        return self._get(_path(webhook_id), WebhookRecord)

    def remove_webhook(self, webhook_id: str) -> WebhookRecord:
        """Tell its URL nothing any more, what waits to be delivered included."""
        return read(self._send(lambda: self._http.delete(_path(webhook_id)), tries=1), WebhookRecord)

    def test_webhook(self, webhook_id: str, key: str | None = None) -> DeliveryRecord:
        """Have a `webhook.test` delivered, as ended experiments are; an earlier call with the same `key` is answered
        with the delivery that it made."""
        headers = {"Idempotency-Key": key or uuid4().hex}
        response = self._send(
            lambda: self._http.post(f"{_path(webhook_id)}/test", headers=headers), tries=self._retries + 1
        )
        return read(response, DeliveryRecord)

    def webhook_deliveries(self, webhook_id: str, *, limit: int = 50) -> tuple[DeliveryRecord, ...]:
        """What was delivered, what waits and what was given up, the newest first."""
        return self._get(f"{_path(webhook_id)}/deliveries", Page[DeliveryRecord], {"limit": limit}).items


def _path(webhook_id: str) -> str:
    return f"/v1/webhooks/{segment(webhook_id)}"
