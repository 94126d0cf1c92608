"""`adapm-bench export ID`: results and series as tables, everything as one JSON, a report, figures as files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from api.cli.console import Json, fail, print_files
from api.cli.experiments.show import CellOption, Id
from api.cli.service import Url, open_client
from api.client.client import Client

Form = Annotated[
    Literal["parquet", "csv", "json", "report"],
    typer.Option(
        "--format",
        help="parquet, csv: tables of results and series; json: one document without series; report: one HTML file.",
    ),
]
Figures = Annotated[
    Literal["svg", "png", "pdf", "html", "csv", "json"] | None,
    typer.Option(help="Write the figures instead, in this format; csv: their numbers."),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write into; created if missing.")]


def export(
    id: Id,
    form: Form = "parquet",
    figures: Figures = None,
    cell: CellOption = None,
    out: Out = Path(),
    url: Url = None,
    json: Json = False,
) -> None:
    """Write an experiment's results and series as tables, its figures, a document, or a report."""
    with open_client(url) as client:
        client.experiment(id)
        try:
            out.mkdir(parents=True, exist_ok=True)
            written = _figures(client, id, figures, cell, out) if figures else _tables(client, id, form, out)
            print_files(written, as_json=json)
        except OSError as error:
            fail(f"error: cannot write {error.filename or out}: {error.strerror}; choose another folder with --out")


DOCUMENTS = {
    "json": (("{id}.json", "document.json"), ("{id}.bib", "references.bib")),
    "report": (("{id}-report.html", "report"),),
}
"""The formats that are documents instead of tables: the file's name, and the service's."""


def _tables(client: Client, id: str, form: str, folder: Path) -> Iterator[Path]:
    if form in DOCUMENTS:
        for name, resource in DOCUMENTS[form]:
            path = folder / name.format(id=id)
            path.write_bytes(client.document(id, resource))
            yield path
        return
    for table in ("results", "series"):
        path = folder / f"{id}-{table}.{form}"
        client.export(id, f"{table}.{form}", path)
        yield path


def _figures(client: Client, id: str, form: str, cell: str | None, folder: Path) -> Iterator[Path]:
    for name in client.figure_names(id, cell):
        path = folder / "-".join(filter(None, (id, cell, f"{name}.{form}")))
        path.write_bytes(client.figure(id, name, form, cell=cell))
        yield path
