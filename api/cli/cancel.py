"""`adapm-bench cancel ID`: stop an experiment, or one run."""

from typing import TYPE_CHECKING

import typer

from api.cli.console import print_json
from api.cli.look import AnyId
from api.cli.service import Json, Url, connected

if TYPE_CHECKING:
    from api.client import Client
    from orchestrator.records import ExperimentRecord, RunRecord


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(cancel)


def cancel(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Cancel an experiment's unfinished runs, or one run; training ones write a checkpoint and stop within seconds."""
    from orchestrator.records import RunRecord

    with connected(url) as client:
        record = _cancel(client, id)
    if json:
        print_json(record)
    elif isinstance(record, RunRecord):
        print(f"run {record.id}: {record.status.value}")
    else:
        from api.cli.listings import counts_text

        print(f"experiment {record.id}: {counts_text(record.counts)}")


def _cancel(client: "Client", id: str) -> "ExperimentRecord | RunRecord":
    from api.client import ClientError

    try:
        return client.cancel_experiment(id)
    except ClientError as error:
        if error.status != 404:
            raise
    return client.cancel_run(id)
