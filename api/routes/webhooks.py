"""Webhooks over REST: add, list, remove, try, and what was delivered."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.records import Page
from api.routes.context import ID_PATTERN, CallerDependency, JsonRoute, State, problems
from orchestrator.webhooks.records import DeliveryRecord, NewWebhook, WebhookRecord, WebhookRequest

router = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=JsonRoute)

MOST_DELIVERIES = 200
WebhookIdPath = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post("", status_code=201, responses=problems(404, 409, 413, 422))
def add(wanted: WebhookRequest, state: State, caller: CallerDependency, response: Response) -> NewWebhook:
    """Add a webhook, which posts a message when an experiment ends.

    The answer has the secret that signs every message; no other answer has it. The operator's setting `webhook_urls`
    says which URLs may be notified.
    """
    new_webhook = state.services.webhooks.add(wanted, by=caller.key_id())
    response.headers["Location"] = f"/v1/webhooks/{new_webhook.webhook.id}"
    response.headers["Cache-Control"] = "no-store"
    return new_webhook


@router.get("")
def webhooks(state: State) -> Page[WebhookRecord]:
    """List all webhooks, the newest first, with the messages that wait for them; no secrets."""
    return Page(items=state.services.webhooks.list_webhooks())


@router.delete("/{webhook_id}", responses=problems(404))
def remove(webhook_id: WebhookIdPath, state: State) -> WebhookRecord:
    """Remove a webhook and its undelivered messages; answers with the webhook as it was."""
    return state.services.webhooks.remove(webhook_id)


@router.post("/{webhook_id}/test", status_code=202, responses=problems(404, 422))
def try_out(webhook_id: WebhookIdPath, state: State) -> DeliveryRecord:
    """Deliver a message of the type `webhook.test`, soon: the dispatcher does it."""
    return state.services.webhooks.test(webhook_id)


@router.get("/{webhook_id}/deliveries", responses=problems(404, 422))
def deliveries(
    webhook_id: WebhookIdPath, state: State, limit: Annotated[int, Query(ge=1, le=MOST_DELIVERIES)] = 50
) -> Page[DeliveryRecord]:
    """List the newest messages: delivered ones of the last 30 days, those that wait, and those that were given up."""
    return Page(items=state.services.webhooks.deliveries(webhook_id, limit=limit))
