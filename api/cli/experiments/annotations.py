"""`adapm-bench label|note ID`: what people write on an experiment after its submission."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import Json, complain, console, plain, print_json, refuse
from api.cli.experiments.show import Id
from api.cli.service import Url, open_client
from dashboards.text import formats
from orchestrator.records import AnyExperiment


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


def label(id: Id, act: LabelAct, labels: Labels, url: Url = None, json: Json = False) -> None:
    """Add labels to an experiment, or remove them; `adapm-bench ls --label LABEL` finds it by them."""
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
    """Print an experiment's note, or write one: plain text that everybody can read."""
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
