"""What specifications may name: `optimizers` and `models`; `optimizer check NAME`: whether an optimizer keeps what the
catalog promises. `data ls` lists datasets.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel
from rich.text import Text

from api.cli.console import FAILED, Json, console, fail, plain, print_json, refuse, text_table
from api.cli.service import environment_settings
from api.records import model_info, optimizer_info
from optim import catalog
from optim.errors import OptimError
from optim.nearest import unknown
from worker.catalog import presets

if TYPE_CHECKING:
    from worker.checks.subject import Promise, Subject

Name = Annotated[str | None, typer.Argument(help="Show this optimizer's options.", metavar="[NAME]")]
CheckedName = Annotated[str, typer.Argument(help="An optimizer by name, your own included.", metavar="NAME")]
Rate = Annotated[
    float | None,
    typer.Option("--lr", min=0.0, help="A learning rate at which a tiny model learns within 40 steps; default: 3e-3."),
]
Coasts = Annotated[
    bool, typer.Option("--coasts", help="Allow weights to move at learning rate 0: momentum of steps, averages.")
]

MESSAGE_CHARACTERS = 400

verbs = typer.Typer(help="Check your own optimizers: docs/own-optimizer.md.", no_args_is_help=True)


def optimizers(name: Name = None, json: Json = False) -> None:
    """List the optimizers, or one with its options."""
    try:
        infos = tuple(optimizer_info(entry) for entry in catalog.entries())
    except OptimError as error:  # of an optimizer of one's own that cannot be used
        fail(str(error))
    info = next((info for info in infos if info.name == name), None)
    if info is None and name is not None:
        fail(unknown("optimizer", name, (info.name for info in infos)))
    out = console()
    if json:
        print_json(info or infos)
    elif info is None:
        rows = [(i.name, i.title, f"{i.learning_rate:g}", i.summary, i.paper) for i in infos]
        out.print(text_table(("optimizer", "title", "usual lr", "what it is", "paper"), rows))
        print("\nadapm-bench optimizers NAME shows the options of one.")
    else:
        out.print(Text(info.title, style="bold"))
        out.print(f"{info.summary}\n{info.paper}; licence of the implementation: {info.licence}\n")
        options = [
            (o.name, "null" if o.default is None else str(o.default), o.allowed, o.meaning) for o in info.options
        ]
        out.print(text_table(("option", "default", "allowed", "meaning"), options))


def models(json: Json = False) -> None:
    """List the models."""
    infos = tuple(model_info(preset) for preset in presets.PRESETS)
    if json:
        print_json(infos)
        return
    columns = ("model", "family", "layers", "heads", "hidden", "positions", "vocabulary", "source")
    sizes = ("layers", "heads", "hidden_size", "max_positions", "vocabulary_size")
    rows = [(i.name, i.family, *(f"{getattr(i, size):,}" for size in sizes), i.source) for i in infos]
    console().print(text_table(columns, rows))


class PromiseCheck(BaseModel):
    """One promise, and whether it was kept."""

    promise: str
    kept: bool
    found: str = ""
    """What was found instead; empty where it was kept."""


@verbs.command()
def check(name: CheckedName, lr: Rate = None, coasts: Coasts = False, json: Json = False) -> None:
    """Check that an optimizer keeps the catalog's promises: learning, resuming, rates, groups, closures, memory, and
    what its entry claims of its steps."""
    environment_settings()
    if name not in catalog.names():
        refuse(unknown("optimizer", name, catalog.names()))
    from worker.checks.optimizer_contract import promises_of  # loads torch
    from worker.checks.subject import USUAL_RATE, Subject

    subject = Subject(name=name, lr=USUAL_RATE if lr is None else lr, coasts=coasts)
    found: list[PromiseCheck] = []
    for each in check_promises(subject, promises_of(subject)):
        found.append(each)
        if not json:
            print(f"{'✓' if each.kept else '✗'} {plain(each.promise)}", flush=True)
            if each.found:
                print(f"  → {plain(each.found)}", flush=True)
    broken = sum(not each.kept for each in found)
    if json:
        print_json(found)
    else:
        print(f"{name} keeps {len(found) - broken} of {len(found)} promises")
    if broken:
        raise typer.Exit(FAILED)


def check_promises(subject: "Subject", promises: "tuple[Promise, ...]") -> Iterator[PromiseCheck]:
    """What each promise comes to, one after the other; an error breaks it, too."""
    for promise in promises:
        sentence = (promise.__doc__ or promise.__name__).strip()
        try:
            promise(subject)
        except Exception as error:  # noqa: BLE001 - the optimizer is somebody's program: it may raise anything
            words = " ".join(f"{type(error).__name__}: {error}".split())
            found = words.removeprefix("BrokenPromiseError: ")[:MESSAGE_CHARACTERS]
            yield PromiseCheck(promise=sentence, kept=False, found=found)
        else:
            yield PromiseCheck(promise=sentence, kept=True)
