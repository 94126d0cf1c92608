"""`adapm-bench`: every verb registers itself here; none imports anything heavy before it is called."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from api.auth.client_key import KEY_FILE_VARIABLE, KEY_VARIABLE, KeyUnreadableError, own_key
from api.cli.admin import config, db, doctor, keys, mlflow, up, webhook
from api.cli.console import complain, plain
from api.cli.experiments import actions, curation, export, fit, init, run, show, submit, sweep, watch
from api.cli.offline import catalogs, data, memory, optimizer, plan
from api.cli.service import BAD_INPUT
from api.cli.studies import demo, study

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
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help=f"A file with the key to the service; default: ${KEY_VARIABLE}.")
    ] = None,
) -> None:
    """What stands before a verb."""
    if key_file is not None:
        os.environ.pop(KEY_VARIABLE, None)
        os.environ[KEY_FILE_VARIABLE] = str(key_file)
    try:
        own_key()
    except KeyUnreadableError as error:
        complain(plain(str(error)))
        raise typer.Exit(BAD_INPUT) from None


USING = (
    demo, up, submit, show, watch, actions, curation, fit, sweep, study, export, mlflow, webhook
)  # fmt: skip
BESIDE = (init, run, data, catalogs, optimizer, plan, memory, config, db, keys, doctor)
for verbs in USING + BESIDE:
    verbs.register(main)
