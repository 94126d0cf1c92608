"""`adapm-bench`: every verb registers itself here; none imports anything heavy before it is called."""

from importlib.metadata import version
from typing import Annotated

import typer

from api.cli import (
    catalogs,
    config,
    data,
    db,
    demo,
    doctor,
    export,
    fit,
    logs,
    look,
    memory,
    mlflow,
    optimizer,
    plan,
    run,
    submit,
    up,
    watch,
    wishes,
)

main = typer.Typer(
    name="adapm-bench",
    help="Compare memory-efficient LLM optimizers fairly: submit, watch, compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"adapm-bench {version('adapm-bench')}")
        raise typer.Exit


@main.callback()
def _options(
    say_version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """What stands before a verb."""


USING = (demo, up, submit, look, watch, wishes, logs, fit, export, mlflow)
BESIDE = (run, data, catalogs, optimizer, plan, memory, config, db, doctor)
for verbs in USING + BESIDE:
    verbs.register(main)
