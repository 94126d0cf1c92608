"""`adapm-bench report ID`: an experiment as one HTML file that needs nothing else."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import complain, say_files
from api.cli.look import Id
from api.cli.service import FAILED, Json, Url, connected

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="The file to write; default: ID-report.html here.", dir_okay=False)
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(report)


def report(id: Id, out: Out = None, url: Url = None, json: Json = False) -> None:
    """Write a report: answer, figures, method, runs, provenance and BibTeX in one HTML file."""
    with connected(url) as client:
        text = client.document(id, "report").decode()
    path = out or Path(f"{id}-report.html")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"error: cannot write {path}: {error.strerror}; choose another file with --out")
        raise typer.Exit(FAILED) from error
    say_files([path], as_json=json)
