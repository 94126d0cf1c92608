"""`adapm-bench optimizer check NAME`: whether an optimizer keeps what the catalog promises. It needs no service."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel

from api.cli.console import complain, plain, print_json
from api.cli.service import BAD_INPUT, FAILED, Json, environment_settings
from optim.nearest import unknown

if TYPE_CHECKING:
    from worker.checks.optimizer_contract import Promise, Subject

Name = Annotated[str, typer.Argument(help="A name of the catalog, own optimizers included.")]
Rate = Annotated[
    float | None, typer.Option("--lr", min=0.0, help="A rate at which 40 steps teach a tiny model; default: 3e-3.")
]
Coasts = Annotated[bool, typer.Option("--coasts", help="Its weights may move at rate 0: momentum of steps, averages.")]

MESSAGE_CHARACTERS = 400


class Finding(BaseModel):
    """One promise, and whether it was kept."""

    promise: str
    kept: bool
    found: str = ""
    """What was found instead; empty where it was kept."""


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    group = typer.Typer(help="Your own optimizers: docs/own-optimizer.md.", no_args_is_help=True)
    group.command()(check)
    app.add_typer(group, name="optimizer")


def check(name: Name, lr: Rate = None, coasts: Coasts = False, json: Json = False) -> None:
    """Check what every optimizer of the catalog promises: learning, resuming, rates, groups, closures, memory."""
    environment_settings()
    from optim import catalog

    if name not in catalog.names():
        complain(plain(unknown("optimizer", name, catalog.names())))
        raise typer.Exit(BAD_INPUT)
    from worker.checks.optimizer_contract import PROMISES, USUAL_RATE, Subject

    subject = Subject(name=name, lr=USUAL_RATE if lr is None else lr, coasts=coasts)
    found: list[Finding] = []
    for finding in findings(subject, PROMISES):
        found.append(finding)
        if not json:
            _say(finding)
    broken = sum(not finding.kept for finding in found)
    if json:
        print_json(found)
    else:
        print(f"{name} keeps {len(found) - broken} of {len(found)} promises")
    if broken:
        raise typer.Exit(FAILED)


def findings(subject: "Subject", promises: "tuple[Promise, ...]") -> Iterator[Finding]:
    """What each promise comes to, one after the other; an error breaks it, too."""
    for promise in promises:
        sentence = (promise.__doc__ or promise.__name__).strip()
        try:
            promise(subject)
        except Exception as error:  # noqa: BLE001 - the optimizer is somebody's program: it may raise anything
            words = " ".join(f"{type(error).__name__}: {error}".split())
            found = words.removeprefix("BrokenPromiseError: ")[:MESSAGE_CHARACTERS]
            yield Finding(promise=sentence, kept=False, found=found)
        else:
            yield Finding(promise=sentence, kept=True)


def _say(finding: Finding) -> None:
    print(f"{'✓' if finding.kept else '✗'} {plain(finding.promise)}", flush=True)
    if finding.found:
        print(f"  → {plain(finding.found)}", flush=True)
