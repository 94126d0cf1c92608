"""What specifications may name: `optimizers` and `models`; `data ls` lists datasets. They need no service."""

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain, console, print_json
from api.cli.service import FAILED, Json
from optim.nearest import unknown

if TYPE_CHECKING:
    from api.records import OptimizerInfo

Name = Annotated[str | None, typer.Argument(help="Show this optimizer's options.", metavar="[NAME]")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(optimizers)
    app.command()(models)


def optimizers(name: Name = None, json: Json = False) -> None:
    """List the optimizers, or one with its options."""
    from api.records import optimizer_info
    from optim import catalog

    infos = tuple(optimizer_info(entry) for entry in catalog.entries())
    if name is None:
        print_json(infos) if json else _optimizers(infos)
        return
    info = next((info for info in infos if info.name == name), None)
    if info is None:
        complain(unknown("optimizer", name, (info.name for info in infos)))
        raise typer.Exit(FAILED)
    print_json(info) if json else _options(info)


def models(json: Json = False) -> None:
    """List the models."""
    from api.cli.tables.comparison import text_table
    from api.records import model_info
    from worker.catalog import presets

    infos = tuple(model_info(preset) for preset in presets.PRESETS)
    if json:
        print_json(infos)
        return
    columns = ("model", "family", "layers", "heads", "hidden", "positions", "vocabulary", "source")
    sizes = ("layers", "heads", "hidden_size", "max_positions", "vocabulary_size")
    rows = [(i.name, i.family, *(f"{getattr(i, size):,}" for size in sizes), i.source) for i in infos]
    console().print(text_table(columns, rows))


def _optimizers(infos: "tuple[OptimizerInfo, ...]") -> None:
    from api.cli.tables.comparison import text_table

    rows = [(i.name, i.title, f"{i.learning_rate:g}", i.summary, i.paper) for i in infos]
    console().print(text_table(("optimizer", "title", "usual lr", "what it is", "paper"), rows))
    print("\nadapm-bench optimizers NAME shows the options of one.")


def _options(info: "OptimizerInfo") -> None:
    from rich.text import Text

    from api.cli.tables.comparison import text_table

    out = console()
    out.print(Text(info.title, style="bold"))
    out.print(f"{info.summary}\n{info.paper}; licence of the implementation: {info.licence}\n")
    rows = [(o.name, "null" if o.default is None else str(o.default), o.allowed, o.meaning) for o in info.options]
    out.print(text_table(("option", "default", "allowed", "meaning"), rows))
