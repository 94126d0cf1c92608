"""`adapm-bench fit ID…`: scaling laws over experiments of several sizes."""

from enum import StrEnum
from typing import Annotated

import typer

from api.cli.console import console, print_json
from api.cli.service import Json, Url, open_client


class FormOption(StrEnum):
    """The forms by name, as `orchestrator/analysis/laws/model.py` knows them."""

    N = "n"
    N0 = "n0"
    D = "d"
    D0 = "d0"
    ND = "nd"


Ids = Annotated[list[str], typer.Argument(help="A scaling experiment, or several experiments.", metavar="ID...")]
FormChoice = Annotated[
    FormOption | None,
    typer.Option(
        "--form",
        help="n: E + A N^-alpha; n0: without E; d, d0: in tokens; nd: both. Default: the richest that they can tell.",
    ),
]
Predict = Annotated[
    list[str] | None,
    typer.Option(
        "--predict",
        help="A model, or a number of parameters (1.5e9), to predict loss and memory at; repeatable.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(fit)


def fit(ids: Ids, form: FormChoice = None, predict: Predict = None, url: Url = None, json: Json = False) -> None:
    """Fit each optimizer's scaling law over experiments: exponents with intervals, predictions, verdicts."""
    from api.cli.tables.fit import fit_view

    with open_client(url) as client:
        report = client.fit(ids, form=form.value if form else None, predict=predict or [])
    print_json(report) if json else console().print(fit_view(report))
