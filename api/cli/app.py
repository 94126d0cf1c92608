"""`adapm-bench`: every verb and every group of verbs, in the order of `--help`."""

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from api.auth.client_key import KEY_FILE_VARIABLE, KEY_VARIABLE, KeyUnreadableError, own_key
from api.cli.admin import config, db, keys, up, webhook
from api.cli.console import refuse
from api.cli.doctor import doctor
from api.cli.experiments import actions, annotations, export, init, run, show, submit, sweep, watch
from api.cli.offline import data, memory, optimizers
from api.cli.studies import demo, study

main = typer.Typer(
    name="adapm-bench",
    help="Compare memory-efficient LLM optimizers fairly: submit, watch, compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"adapm-bench {version('adapm-bench')}")
        raise typer.Exit


@main.callback()
def _set_up(
    say_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
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
        refuse(str(error))


VERBS: tuple[Callable[..., None], ...] = (
    demo.demo, up.up, submit.validate, submit.submit,
    show.ls, show.show, show.compare, watch.watch, show.logs,
    actions.cancel, actions.pause, actions.resume, actions.retry,
    annotations.label, annotations.note, actions.delete, actions.restore, actions.clone,
    show.fit, export.export, export.report, up.mlflow,
    init.init, init.schema, run.run, optimizers.optimizers, optimizers.models, memory.plan, memory.memory,
    keys.audit, doctor.doctor,
)  # fmt: skip
PROCESSES: dict[str, Callable[..., None]] = {
    "api": up.api_process,
    "dispatcher": up.dispatcher_process,
    "sweep-driver": up.driver_process,
}
"""The processes of the service, which nobody starts by hand."""
GROUPS = {
    "sweep": sweep.verbs,
    "study": study.verbs,
    "webhook": webhook.verbs,
    "data": data.verbs,
    "optimizer": optimizers.verbs,
    "config": config.verbs,
    "db": db.verbs,
    "keys": keys.verbs,
}

for verb in VERBS:
    main.command()(verb)
for name, process in PROCESSES.items():
    main.command(name, hidden=True)(process)
for name, verbs in GROUPS.items():
    main.add_typer(verbs, name=name)
