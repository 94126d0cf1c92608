"""`adapm-bench webhook add|ls|rm|test`: which URLs are told of ended experiments."""

import time
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from api.cli.admin.keys import short_moment
from api.cli.console import FAILED, Json, complain, console, plain, print_json, refuse, text_table
from api.cli.service import Url, open_client
from orchestrator.webhooks.records import DeliveryRecord, WebhookRecord, WebhookRequest

WAIT_SECONDS = 30.0
"""How long `test` waits for the dispatcher; a try takes 15 seconds at most."""
LOOK_SECONDS = 0.3

verbs = typer.Typer(help="Webhooks that report ended experiments: add, ls, rm, test.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID")]


@verbs.command()
def add(
    address: Annotated[str, typer.Argument(metavar="WEBHOOK_URL", help="The URL to post messages to.")],
    experiment: Annotated[
        str | None, typer.Option(help="Only when this experiment ends; default: when any does.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Post a message to a URL when experiments end; prints the secret that signs the messages, only once."""
    try:
        wanted = WebhookRequest(url=address, experiment_id=experiment)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        refuse("\n".join(f"{fault['loc'][-1]}: {fault['msg']}; see docs/webhooks.md" for fault in faults))
    with open_client(url, listed_by="webhook ls") as client:
        made = client.add_webhook(wanted)
    if json:
        print_json(made)
        return
    print(made.secret)
    about = f"the end of {made.webhook.experiment_id}" if made.webhook.experiment_id else "every end"
    complain(f"the webhook {made.webhook.id} is told of {plain(about)}; its secret is not shown again")
    complain(f"try it:  adapm-bench webhook test {made.webhook.id}")


@verbs.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List all webhooks with their waiting messages; secrets are not shown."""
    with open_client(url, listed_by="webhook ls") as client:
        found = client.webhooks()
    print_json(found) if json else console().print(_table(found))


@verbs.command()
def rm(webhook_id: Id, url: Url = None, json: Json = False) -> None:
    """Remove a webhook, with its waiting messages."""
    with open_client(url, listed_by="webhook ls") as client:
        gone = client.remove_webhook(webhook_id)
    print_json(gone) if json else print(f"removed {gone.id} ({plain(gone.url)})")


@verbs.command("test")
def send_test(webhook_id: Id, url: Url = None, json: Json = False) -> None:
    """Post a test message (`webhook.test`) and report the outcome; exit code 0 if it was delivered."""
    with open_client(url, listed_by="webhook ls") as client:
        delivery = client.test_webhook(webhook_id)
        deadline = time.monotonic() + WAIT_SECONDS
        while delivery.settled_at is None and delivery.tries == 0 and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            newest = client.webhook_deliveries(webhook_id)
            delivery = next((each for each in newest if each.id == delivery.id), delivery)
    print_json(delivery) if json else print(_outcome(delivery))
    if delivery.settled_at is None:
        raise typer.Exit(FAILED)


def _outcome(delivery: DeliveryRecord) -> str:
    if delivery.settled_at is not None:
        return f"delivered as {delivery.id}"
    if delivery.last_error is not None:
        return f"not delivered: {plain(delivery.last_error)}; the service retries for a day"
    return "not tried yet; is a dispatcher running? `adapm-bench doctor` checks"


def _table(found: tuple[WebhookRecord, ...]) -> Table:
    rows = [
        (
            webhook.id,
            webhook.url,
            webhook.experiment_id or "every end",
            str(webhook.waiting),
            short_moment(webhook.delivered_at),
            webhook.last_error or "",
        )
        for webhook in found
    ]
    return text_table(("id", "URL", "about", "waiting", "delivered", "last error"), rows)
