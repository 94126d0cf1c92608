"""`adapm-bench cancel|pause|resume|retry ID`: what can be asked of an experiment, or of one run;
`delete|restore|clone ID`: of an experiment; `label|note ID`: what people write on one after its submission.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import Json, complain, console, plain, print_json, refuse
from api.cli.experiments.show import AnyId, Id, find
from api.cli.experiments.submit import print_power
from api.cli.listings import counts_text
from api.cli.service import Url, open_client, print_hindrance
from api.client.client import Client
from dashboards.text import formats
from orchestrator.external_runs import ExternalExperiment
from orchestrator.jobs import RunAction
from orchestrator.records import AnyExperiment, RunRecord
from worker.words import pluralize

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
External = Annotated[bool, typer.Option("--external", help="An experiment of external runs, by id or name, for good.")]
ExternalLabels = Annotated[bool, typer.Option("--external", help="An experiment of external runs, by id or name.")]
Name = Annotated[str | None, typer.Option("--name", help="The clone's name; default: the original's.")]
MoreSeeds = Annotated[
    int | None,
    typer.Option(
        "--more-seeds",
        min=1,
        max=256,
        help="Of a comparison that has ended: each candidate at its judged setting on so many fresh seeds, without "
        "another tuning. The verdict is about these seeds alone.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        max=1024,
        help="Of one run: so many processes train it from now on, each with a GPU where it has GPUs.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", help="Idempotency key: the same key gives the same clone.")]


def cancel(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Cancel an experiment's unfinished runs, or one run. Training runs write a checkpoint and stop within seconds."""
    _apply(RunAction.CANCEL, id, url, json)


def pause(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Pause an experiment's runs, or one run. Training runs write a checkpoint and stop within seconds."""
    _apply(RunAction.PAUSE, id, url, json)


def resume(id: AnyId, processes: Processes = None, url: Url = None, json: Json = False) -> None:
    """Continue paused runs from their checkpoints, to the same losses as if they had never stopped."""
    _apply(RunAction.RESUME, id, url, json, processes)


def retry(id: AnyId, processes: Processes = None, url: Url = None, json: Json = False) -> None:
    """Queue failed or cancelled runs again; they continue from their last checkpoint, if there is one."""
    _apply(RunAction.RETRY, id, url, json, processes)


def _apply(action: RunAction, id: str, url: str | None, json: bool, processes: int | None = None) -> None:
    record: RunRecord | AnyExperiment
    with open_client(url) as client:
        found = find(client, id)
        if isinstance(found, RunRecord):
            record = client.apply_to_run(found.id, action, processes)
        elif processes is not None:
            refuse(f"--processes is for one run; {id} is an experiment. `adapm-bench runs {id}` lists its runs")
        else:
            record = client.apply_to_experiment(found.id, action)
        if action in (RunAction.RESUME, RunAction.RETRY):
            print_hindrance(client)
    if json:
        print_json(record)
    elif isinstance(record, RunRecord):
        print(f"run {record.id}: {record.state_word()}")
    else:
        print_state(record)


def print_state(experiment: AnyExperiment) -> None:
    """Print how many runs of an experiment are in which state."""
    print(f"experiment {experiment.id}: {counts_text(experiment.counts)}")


def delete(id: Id, yes: Yes = False, external: External = False, url: Url = None, json: Json = False) -> None:
    """Delete an experiment whose runs have all ended; `adapm-bench restore` can undo it for a while."""
    with open_client(url, listed_by="judge" if external else "ls") as client:
        if external:
            _delete_external(client, id, yes=yes, json=json)
            return
        if not yes:
            known = client.experiment(id)
            _confirm(f"Delete experiment {known.id}, {known.name!r}, {pluralize(known.counts.total, 'run')}?", yes=yes)
        experiment = client.delete_experiment(id)
    if json:
        print_json(experiment)
        return
    way_back = "it cannot be restored."
    if experiment.undo_until is not None:
        until = formats.moment(experiment.undo_until)
        way_back = f"until {until} `adapm-bench restore {experiment.id}` brings it back."
    print(f"experiment {experiment.id} is deleted; {way_back} MLflow keeps its copy.")


def _delete_external(client: Client, id: str, *, yes: bool, json: bool) -> None:
    known = client.external_experiment(id)
    _confirm(
        f"Delete external experiment {known.id}, {known.name!r}, {pluralize(known.runs, 'run')}, for good?", yes=yes
    )
    deleted = client.delete_external_experiment(known.id)
    print_json(deleted) if json else print(f"external experiment {deleted.id} is deleted for good")


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        refuse(f"{plain(question)} Nobody can confirm it here; give --yes")
    typer.confirm(plain(question), abort=True, err=True)


def restore(id: Id, url: Url = None, json: Json = False) -> None:
    """Restore a deleted experiment; `adapm-bench ls --deleted` lists those that still can be."""
    with open_client(url) as client:
        experiment = client.restore_experiment(id)
    print_json(experiment) if json else print_state(experiment)


def clone(
    id: Id,
    name: Name = None,
    more_seeds: MoreSeeds = None,
    key: Key = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Queue an experiment's specification again, as a new experiment that names the original."""
    with open_client(url) as client:
        keeps = more_seeds is not None
        submission = client.clone_experiment(id, name, key, fresh_seeds=more_seeds, keep_rates=keeps)
        found = client.validate(submission.experiment.spec) if keeps and not json else None
        print_hindrance(client)
    if json:
        print_json(submission)
    else:
        copy = submission.experiment
        known = "" if submission.created else " (cloned before)"
        print(f"experiment {copy.id} is a clone of {id}: {pluralize(copy.counts.total, 'run')}{known}")
    if found is not None:
        print_power(found)


class LabelAct(StrEnum):
    """What happens to labels."""

    ADD = "add"
    REMOVE = "remove"


Labels = Annotated[list[str], typer.Argument(help="Labels; quote those with spaces.", metavar="LABEL...")]
Text = Annotated[
    str | None, typer.Argument(help="The note to write; without it, the command prints the note.", metavar="[TEXT]")
]
File = Annotated[Path | None, typer.Option("--file", help="Read the note from this file; - is standard input.")]
Clear = Annotated[bool, typer.Option("--clear", help="Remove the note.")]


def label(
    id: Id, act: LabelAct, labels: Labels, external: ExternalLabels = False, url: Url = None, json: Json = False
) -> None:
    """Add labels to an experiment, or remove them; `adapm-bench ls --label LABEL` finds it by them."""
    experiment: AnyExperiment | ExternalExperiment
    with open_client(url, listed_by="judge" if external else "ls") as client:
        if external:
            experiment = client.label_external_experiment(id, **{act.value: labels})
        else:
            change = client.add_labels if act is LabelAct.ADD else client.remove_labels
            experiment = change(id, *labels)
    if json:
        print_json(experiment)
    else:
        print(plain(f"experiment {experiment.id}: {', '.join(experiment.labels) or 'no labels'}"))


def note(
    id: Id, text: Text = None, file: File = None, clear: Clear = False, url: Url = None, json: Json = False
) -> None:
    """Print an experiment's note, or write one, in Markdown, that everybody can read."""
    if sum((text is not None, file is not None, clear)) > 1:
        refuse("give one of TEXT, --file and --clear")
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            refuse(f"{file}: {error}")
    if text is not None and not text.strip():
        refuse("the text is empty; nothing was changed. --clear removes the note")
    writes = text is not None or clear
    with open_client(url) as client:
        experiment = client.write_note(id, text) if writes else client.experiment(id)
    if json:
        print_json(experiment)
    elif writes:
        print(f"experiment {experiment.id}: the note is {'written' if experiment.note else 'removed'}")
    else:
        _print_note(experiment)


def _print_note(experiment: AnyExperiment) -> None:
    if experiment.note is None:
        complain(f"experiment {experiment.id} has no note")
        return
    author = experiment.note.editor or experiment.note.edited_by
    screen = console()
    if screen.is_terminal:
        for line in experiment.note.text.split("\n"):
            screen.print(plain(line.expandtabs(4)))
    else:  # as it is, since it may be written again
        print(experiment.note.text)
    complain(f"({formats.moment(experiment.note.edited_at)}{f' by {author}' if author else ''})")
