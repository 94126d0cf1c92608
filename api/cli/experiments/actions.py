"""`adapm-bench cancel|pause|resume|retry ID`: what can be asked of an experiment, or of one run;
`delete|restore|clone ID`: of an experiment.
"""

import sys
from typing import Annotated

import typer

from api.cli.console import Json, plain, print_json, refuse
from api.cli.experiments.show import AnyId, Id, find
from api.cli.service import Url, open_client
from api.cli.tables.listings import counts_text
from dashboards.text import formats
from orchestrator.jobs import RunAction
from orchestrator.records import AnyExperiment, RunRecord

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Name = Annotated[str | None, typer.Option("--name", help="The clone's name; default: the original's.")]
Key = Annotated[str | None, typer.Option("--key", help="Idempotency key: the same key gives the same clone.")]


def cancel(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Cancel an experiment's unfinished runs, or one run. Training runs write a checkpoint and stop within seconds."""
    _apply(RunAction.CANCEL, id, url, json)


def pause(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Pause an experiment's runs, or one run. Training runs write a checkpoint and stop within seconds."""
    _apply(RunAction.PAUSE, id, url, json)


def resume(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Continue paused runs from their checkpoints, to the same losses as if they had never stopped."""
    _apply(RunAction.RESUME, id, url, json)


def retry(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Queue failed or cancelled runs again; they continue from their last checkpoint, if there is one."""
    _apply(RunAction.RETRY, id, url, json)


def _apply(action: RunAction, id: str, url: str | None, json: bool) -> None:
    with open_client(url) as client:
        found = find(client, id)
        apply = client.apply_to_run if isinstance(found, RunRecord) else client.apply_to_experiment
        record = apply(found.id, action)
    if json:
        print_json(record)
    elif isinstance(record, RunRecord):
        print(f"run {record.id}: {record.state_word()}")
    else:
        print_state(record)


def print_state(experiment: AnyExperiment) -> None:
    """Print how many runs of an experiment are in which state."""
    print(f"experiment {experiment.id}: {counts_text(experiment.counts)}")


def delete(id: Id, yes: Yes = False, url: Url = None, json: Json = False) -> None:
    """Delete an experiment whose runs have all ended; `adapm-bench restore` can undo it for a while."""
    with open_client(url) as client:
        if not yes:
            _confirm(client.experiment(id))
        experiment = client.delete_experiment(id)
    if json:
        print_json(experiment)
        return
    way_back = "it cannot be restored."
    if experiment.undo_until is not None:
        until = formats.moment(experiment.undo_until)
        way_back = f"until {until} `adapm-bench restore {experiment.id}` brings it back."
    print(f"experiment {experiment.id} is deleted; {way_back} MLflow keeps its copy.")


def _confirm(experiment: AnyExperiment) -> None:
    """End the command unless somebody at a terminal agrees."""
    question = plain(f"Delete experiment {experiment.id}, {experiment.name!r}, {experiment.counts.total} runs?")
    if not sys.stdin.isatty():
        refuse(f"{question} Nobody can confirm it here; give --yes")
    typer.confirm(question, abort=True, err=True)


def restore(id: Id, url: Url = None, json: Json = False) -> None:
    """Restore a deleted experiment; `adapm-bench ls --deleted` lists those that still can be."""
    with open_client(url) as client:
        experiment = client.restore_experiment(id)
    print_json(experiment) if json else print_state(experiment)


def clone(id: Id, name: Name = None, key: Key = None, url: Url = None, json: Json = False) -> None:
    """Queue an experiment's specification again, as a new experiment that names the original."""
    with open_client(url) as client:
        submission = client.clone_experiment(id, name, key)
    if json:
        print_json(submission)
    else:
        copy = submission.experiment
        known = "" if submission.created else " (cloned before)"
        print(f"experiment {copy.id} is a clone of {id}: {copy.counts.total} runs{known}")
