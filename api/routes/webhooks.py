"""Webhooks over REST: add, list, remove, try, and what was delivered."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.records import Page
from api.routes.context import ID_PATTERN, CallerDependency, JsonRoute, State, json_response, problems
from orchestrator.webhooks.records import DeliveryRecord, NewWebhook, WebhookRecord, WebhookRequest

router = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=JsonRoute)

MOST_DELIVERIES = 200
WebhookIdPath = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "",
    status_code=201,
    response_model=NewWebhook,
    responses=problems(404, 409, 413, 422),
)
def add(wanted: WebhookRequest, state: State, caller: CallerDependency) -> Response:
    """Add a webhook, which posts a message when an experiment ends.

    The answer has the secret that signs every message; no other answer has it. The operator's setting `webhook_urls`
    says which URLs may be told.
    """
    new_webhook = state.services.webhooks.add(wanted, by=caller.key_id())
    headers = {"Location": f"/v1/webhooks/{new_webhook.webhook.id}", "Cache-Control": "no-store"}
    return json_response(new_webhook, 201, headers)


@router.get("", response_model=Page[WebhookRecord])
def webhooks(state: State) -> Response:
    """All webhooks, the newest first, with what waits for them; no secrets."""
    return json_response(Page[WebhookRecord](items=state.services.webhooks.list_webhooks()))


@router.delete("/{webhook_id}", response_model=WebhookRecord, responses=problems(404))
def remove(webhook_id: WebhookIdPath, state: State) -> Response:
    """Remove a webhook and its undelivered messages; answers with the webhook as it was."""
    return json_response(state.services.webhooks.remove(webhook_id))


@router.post("/{webhook_id}/test", status_code=202, response_model=DeliveryRecord, responses=problems(404, 422))
def try_out(webhook_id: WebhookIdPath, state: State) -> Response:
    """Deliver a message of the type `webhook.test`, soon: the dispatcher does it."""
    return json_response(state.services.webhooks.test(webhook_id), 202)


@router.get("/{webhook_id}/deliveries", response_model=Page[DeliveryRecord], responses=problems(404, 422))
def deliveries(
    webhook_id: WebhookIdPath, state: State, limit: Annotated[int, Query(ge=1, le=MOST_DELIVERIES)] = 50
) -> Response:
    """The newest messages: delivered ones of the last 30 days, those that wait, and those that were given up."""
    return json_response(Page[DeliveryRecord](items=state.services.webhooks.deliveries(webhook_id, limit=limit)))
