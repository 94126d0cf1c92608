"""`adapm-bench doctor`: what this machine has, what is missing, and the way out of each trouble."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator

import typer

from api.cli.admin.up import Data
from api.cli.console import LOG_WIDTH, plain, print_json
from api.cli.doctor.finding import Check, broken, good
from api.cli.service import FAILED, Json, read_settings

NAME_COLUMNS = 12


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(doctor)


def doctor(data: Data = None, json: Json = False) -> None:
    """Look at settings, Python, disk, port, database, clock, MLflow, GPU, PyTorch, Ray. Exit code 1: some is broken."""
    if data is not None:
        os.environ["ADAPM_BENCH_DATA_FOLDER"] = str(data)  # for the process that looks, too
    found: list[Check] = []
    for check in checks():
        found.append(check)
        if not json:
            _say(check)
    if json:
        print_json(found)
    else:
        _sum_up(found)
    if not all(check.ok for check in found):
        raise typer.Exit(FAILED)


def checks() -> Iterator[Check]:
    """Every check, one after the other: some take seconds."""
    from api.cli.doctor.round import go_round

    yield from settings()
    yield from go_round()


def settings() -> Iterator[Check]:
    """The settings: each fault by itself, or how many come from where."""
    from orchestrator.settings import place

    name, understood = "settings", read_settings()
    if isinstance(understood, tuple):
        for fault in understood:
            what, _, way_out = fault.rpartition("; ")
            yield broken(name, what or fault, way_out if what else "correct or unset it: docs/settings.md")
        return
    places = [found.text for field in type(understood).model_fields if (found := place(field)) is not None]
    yield good(name, ", ".join(places) or "all by default")


def _say(check: Check) -> None:
    mark = "✗" if not check.ok else "!" if check.way_out else "✓"
    _print(f"{mark} {check.name:<{NAME_COLUMNS}} ", check.found)
    if check.way_out:
        _print(f"  {'':<{NAME_COLUMNS}} → ", check.way_out)


def _print(head: str, text: str) -> None:
    width = shutil.get_terminal_size((LOG_WIDTH, 24)).columns if sys.stdout.isatty() else LOG_WIDTH
    wrapped = textwrap.wrap(plain(text), max(20, width - len(head)), break_long_words=False, break_on_hyphens=False)
    print(head + f"\n{' ' * len(head)}".join(wrapped or [""]), flush=True)


def _sum_up(found: list[Check]) -> None:
    faults = sum(not check.ok for check in found)
    notices = sum(check.ok and bool(check.way_out) for check in found)
    summary = f"{faults} broken" if faults else "nothing is broken"
    print(f"\n{len(found)} looked at, {summary}{f', {notices} could be better' if notices else ''}")
