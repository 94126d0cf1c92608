"""`adapm-bench cancel|pause|resume|retry ID`: what can be asked of an experiment, or of one run."""

from typing import TYPE_CHECKING

import typer

from api.cli.console import print_json
from api.cli.experiments.show import AnyId, resolve_id
from api.cli.service import Json, Url, open_client
from orchestrator.jobs import RunAction

if TYPE_CHECKING:
    from api.client.client import Client
    from orchestrator.records import AnyExperiment, RunRecord


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (cancel, pause, resume, retry):
        app.command()(verb)


def cancel(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Cancel an experiment's unfinished runs, or one run; training ones write a checkpoint and stop within seconds."""
    _apply(id, RunAction.CANCEL, url, json)


def pause(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Pause an experiment's runs, or one run; training ones write a checkpoint and free their place within seconds."""
    _apply(id, RunAction.PAUSE, url, json)


def resume(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Let paused runs go on from their checkpoints, to the same losses as if they had never stopped."""
    _apply(id, RunAction.RESUME, url, json)


def retry(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Queue failed or cancelled runs once more; they go on from their last checkpoint, if there is one."""
    _apply(id, RunAction.RETRY, url, json)


def _apply(id: str, action: RunAction, url: str | None, json: bool) -> None:
    from orchestrator.records import RunRecord

    with open_client(url) as client:
        record = _ask(client, id, action)
    if json:
        print_json(record)
    elif isinstance(record, RunRecord):
        print(f"run {record.id}: {record.state_word()}")
    else:
        from api.cli.tables.listings import counts_text

        print(f"experiment {record.id}: {counts_text(record.counts)}")


def _ask(client: "Client", id: str, action: RunAction) -> "AnyExperiment | RunRecord":
    from orchestrator.records import RunRecord

    found = resolve_id(client, id)
    return (
        client.apply_to_run(found.id, action)
        if isinstance(found, RunRecord)
        else client.apply_to_experiment(found.id, action)
    )
