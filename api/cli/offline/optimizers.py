"""`adapm-bench optimizers [NAME]`: the optimizers; one with its options; whether it keeps the catalog's promises."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel
from rich.text import Text

from api.cli.console import FAILED, Json, console, fail, plain, print_json, refuse, text_table
from api.cli.settings import environment_settings
from api.records import optimizer_info
from optim import catalog
from optim.errors import OptimError
from optim.nearest import unknown

if TYPE_CHECKING:
    from worker.checks.subject import Promise, Subject

Name = Annotated[str | None, typer.Argument(help="Show this optimizer's options, your own included.", metavar="[NAME]")]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Check the catalog's promises and the claims of its entry.",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="With --check: a learning rate at which a tiny model learns within 40 steps; default: 3e-3."
    ),
]
Coasts = Annotated[
    bool,
    typer.Option(
        "--coasts", help="With --check: allow weights to move at learning rate 0 (momentum of steps, averages)."
    ),
]

MESSAGE_CHARACTERS = 400


def optimizers(
    name: Name = None, check: Check = False, lr: Rate = None, coasts: Coasts = False, json: Json = False
) -> None:
    """List the optimizers, or show one with its options; --check tests the catalog's promises."""
    if check:
        if name is None:
            refuse("--check tests one optimizer; name it")
        environment_settings()
        if not catalog.knows(name):
            refuse(unknown("optimizer", name, catalog.names()))
        from worker.checks.optimizer_contract import promises_of  # loads torch
        from worker.checks.subject import USUAL_RATE, Subject

        subject = Subject(name=name, lr=USUAL_RATE if lr is None else lr, coasts=coasts)
        _check(subject, promises_of(subject), json=json)
        return
    if lr is not None or coasts:
        refuse("--lr and --coasts are about --check")
    try:
        infos = tuple(optimizer_info(entry) for entry in catalog.entries())
    except OptimError as error:  # of an optimizer of one's own that cannot be used
        fail(str(error))
    chosen = None if name is None else catalog.find(name)
    info = None if chosen is None else optimizer_info(chosen)
    if info is None and name is not None:
        fail(unknown("optimizer", name, (info.name for info in infos)))
    screen = console()
    if json:
        print_json(info or infos)
    elif info is None:
        rows = [(i.name, i.title, f"{i.learning_rate:g}", i.summary, i.paper) for i in infos]
        screen.print(text_table(("optimizer", "title", "usual lr", "what it is", "paper"), rows))
        print("\nadapm-bench optimizers NAME shows the options of one.")
    else:
        screen.print(Text(info.title, style="bold"))
        screen.print(f"{info.summary}\n{info.paper}; licence of the implementation: {info.licence}\n")
        options = [
            (o.name, "null" if o.default is None else str(o.default), o.allowed, o.meaning) for o in info.options
        ]
        screen.print(text_table(("option", "default", "allowed", "meaning"), options))


class PromiseCheck(BaseModel):
    """A promise, and whether the optimizer kept it."""

    promise: str
    kept: bool
    found: str = ""
    """The observed behaviour; empty if the promise was kept."""


def _check(subject: "Subject", promises: "tuple[Promise, ...]", *, json: bool) -> None:
    """Print which promises the optimizer keeps, each as soon as it is known; exit code 1 where it breaks one."""
    checks: list[PromiseCheck] = []
    for check in check_promises(subject, promises):
        checks.append(check)
        if not json:
            print(f"{'✓' if check.kept else '✗'} {plain(check.promise)}", flush=True)
            if check.found:
                print(f"  → {plain(check.found)}", flush=True)
    broken = sum(not check.kept for check in checks)
    if json:
        print_json(checks)
    else:
        print(f"{subject.name} keeps {len(checks) - broken} of {len(checks)} promises")
    if broken:
        raise typer.Exit(FAILED)


def check_promises(subject: "Subject", promises: "tuple[Promise, ...]") -> Iterator[PromiseCheck]:
    """Yield the outcome of each promise; an error breaks it, too."""
    for promise in promises:
        sentence = (promise.__doc__ or promise.__name__).strip()
        try:
            promise(subject)
        except Exception as error:  # noqa: BLE001 - the optimizer is somebody's program: it may raise anything
            message = " ".join(f"{type(error).__name__}: {error}".split())
            reason = message.removeprefix("BrokenPromiseError: ")[:MESSAGE_CHARACTERS]
            yield PromiseCheck(promise=sentence, kept=False, found=reason)
        else:
            yield PromiseCheck(promise=sentence, kept=True)
