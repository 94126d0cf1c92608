"""`adapm-bench label|note|delete|restore|clone ID`: keeping experiments in order, after their submission."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain, console, plain, print_json
from api.cli.experiments.show import Id
from api.cli.service import BAD_INPUT, Json, Url, open_client

if TYPE_CHECKING:
    from orchestrator.records import AnyExperiment


class LabelAct(StrEnum):
    """What happens to labels."""

    ADD = "add"
    REMOVE = "remove"


Words = Annotated[
    list[str], typer.Argument(help="Labels: free words, in quotes where they have blanks.", metavar="LABEL...")
]
Text = Annotated[
    str | None, typer.Argument(help="What to write, in plain text; nothing prints the note.", metavar="[TEXT]")
]
File = Annotated[Path | None, typer.Option("--file", help="Write what this file holds; - is the standard input.")]
Clear = Annotated[bool, typer.Option("--clear", help="Take the note away.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Name = Annotated[str | None, typer.Option("--name", help="Its name; default: that of the experiment that is cloned.")]
Key = Annotated[str | None, typer.Option("--key", help="An idempotency key: the same key gives the same clone.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (label, note, delete, restore, clone):
        app.command()(verb)


def label(id: Id, act: LabelAct, labels: Words, url: Url = None, json: Json = False) -> None:
    """Give an experiment labels, or take them away; `adapm-bench ls --label LABEL` finds it by them."""
    with open_client(url) as client:
        change = client.add_labels if act is LabelAct.ADD else client.remove_labels
        experiment = change(id, *labels)
    if json:
        print_json(experiment)
    else:
        print(plain(f"experiment {experiment.id}: {', '.join(experiment.labels) or 'no labels'}"))


def note(
    id: Id, text: Text = None, file: File = None, clear: Clear = False, url: Url = None, json: Json = False
) -> None:
    """Print an experiment's note, and nothing else on standard output; or write it: plain text, for everybody."""
    if sum((text is not None, file is not None, clear)) > 1:
        complain("give one of TEXT, --file and --clear")
        raise typer.Exit(BAD_INPUT)
    wanted = _read(file) if file is not None else text
    if wanted is not None and not wanted.strip():
        complain("the text is empty, and nothing was changed; --clear takes the note away")
        raise typer.Exit(BAD_INPUT)
    with open_client(url) as client:
        writes = wanted is not None or clear
        experiment = client.write_note(id, wanted) if writes else client.experiment(id)
    if json:
        print_json(experiment)
    elif writes:
        print(f"experiment {experiment.id}: the note is {'written' if experiment.note else 'taken away'}")
    else:
        _print_note(experiment)


def delete(id: Id, yes: Yes = False, url: Url = None, json: Json = False) -> None:
    """Delete an experiment of which every run has ended; `adapm-bench restore` undoes it for a while."""
    with open_client(url) as client:
        if not yes:
            _ask(client.experiment(id))
        experiment = client.delete_experiment(id)
    if json:
        print_json(experiment)
    else:
        print(f"experiment {experiment.id} is deleted; {_way_back(experiment)} Its copy in MLflow is left.")


def restore(id: Id, url: Url = None, json: Json = False) -> None:
    """Undo the deletion of an experiment; `adapm-bench ls --deleted` lists those for which there is still time."""
    with open_client(url) as client:
        experiment = client.restore_experiment(id)
    if json:
        print_json(experiment)
    else:
        from api.cli.tables.listings import counts_text

        print(f"experiment {experiment.id}: {counts_text(experiment.counts)}")


def clone(id: Id, name: Name = None, key: Key = None, url: Url = None, json: Json = False) -> None:
    """Queue an experiment's specification once more, as a new experiment that says of what it is a clone."""
    with open_client(url) as client:
        submission = client.clone_experiment(id, name, key)
    if json:
        print_json(submission)
    else:
        made = submission.experiment
        known = "" if submission.created else " (it was there already)"
        print(f"experiment {made.id} is a clone of {id}: {made.counts.total} runs{known}")


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        complain(plain(f"{file}: {error}"))
        raise typer.Exit(BAD_INPUT) from None


def _print_note(experiment: "AnyExperiment") -> None:
    from dashboards.text import formats

    if experiment.note is None:
        complain(f"experiment {experiment.id} has no note")
        return
    who = experiment.note.editor or experiment.note.edited_by
    edited = formats.moment(experiment.note.edited_at) + (f" by {who}" if who else "")
    screen = console()
    if screen.is_terminal:
        for line in experiment.note.text.split("\n"):
            screen.print(plain(line.expandtabs(4)))
    else:  # as it is, since it may be written again
        print(experiment.note.text)
    complain(plain(f"({edited})"))


def _ask(experiment: "AnyExperiment") -> None:
    """End the command unless somebody at a terminal agrees."""
    question = plain(f"Delete experiment {experiment.id}, {experiment.name!r}, {experiment.counts.total} runs?")
    if not sys.stdin.isatty():
        complain(f"{question} Nobody can be asked here; say --yes")
        raise typer.Exit(BAD_INPUT)
    typer.confirm(question, abort=True, err=True)


def _way_back(experiment: "AnyExperiment") -> str:
    from dashboards.text import formats

    if experiment.undo_until is None:
        return "it is being removed for good."
    return f"until {formats.moment(experiment.undo_until)} `adapm-bench restore {experiment.id}` brings it back."
