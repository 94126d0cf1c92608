"""`adapm-bench schema`: the JSON schema of specifications, which makes editors complete and check them."""

import json as json_text
from typing import Annotated, Literal

import typer

from api.cli.service import Json, environment_settings

Kind = Annotated[
    Literal["comparison", "sweep", "scaling", "run"], typer.Argument(help="Of which kind.", metavar="KIND")
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(schema)


def schema(kind: Kind = "comparison", json: Json = False) -> None:
    """Print the JSON schema of a specification, for editors: comparison, sweep, scaling or run. It needs no service."""
    from orchestrator.spec_schema import schema as schema_of

    del json  # it is JSON in any case
    environment_settings()  # checks own optimizers: the schema names them, too
    print(json_text.dumps(schema_of(kind), indent=2, ensure_ascii=False))
