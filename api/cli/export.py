"""`adapm-bench export EXPERIMENT`: results and series as Parquet or CSV files."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from api.cli.console import complain
from api.cli.look import Id
from api.cli.service import FAILED, Url, connected

Form = Annotated[Literal["parquet", "csv"], typer.Option("--format", help="What the tables are written as.")]
Out = Annotated[Path, typer.Option("--out", help="The folder to write into; made where it does not exist.")]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(export)


def export(id: Id, form: Form = "parquet", out: Out = Path(), url: Url = None) -> None:
    """Write an experiment's results (a row a run) and series (a row a point) as files."""
    with connected(url) as client:
        client.experiment(id)
        for table in ("results", "series"):
            path = out / f"{id}-{table}.{form}"
            try:
                out.mkdir(parents=True, exist_ok=True)
                client.export(id, f"{table}.{form}", path)
            except OSError as error:
                complain(f"error: cannot write {path}: {error.strerror}; choose another folder with --out")
                raise typer.Exit(FAILED) from error
            print(f"{path}  {path.stat().st_size:,} bytes")
