"""`adapm-bench`: every verb and every group of verbs, as `--help` shows them, and where its module is.

A verb's module is imported when somebody calls it, and imports at its top what it needs: none waits for what another
needs. `--help` imports none: numpy, SQLAlchemy and the HTTP client, which they need together, take a second.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from api.auth.client_key import KEY_FILE_VARIABLE, KEY_VARIABLE, KeyUnreadableError, own_key
from api.cli.console import fail, refuse
from orchestrator.errors import OrchestratorError


class Verb(NamedTuple):
    """A verb, or a group of verbs."""

    place: str
    """Its module below `api.cli`, and the function's name."""
    summary: str
    """The verb's line of `--help`; the docstring of the function says more."""


PANELS = {
    "Run": {
        "demo": Verb("experiments.demo:demo", "Compare AdaPM with AdamW on this machine, in minutes."),
        "init": Verb("experiments.specs:init", "Write a specification to begin with, or its JSON schema."),
        "validate": Verb("experiments.submit:validate", "Check a specification: its runs, cost, memory, faults."),
        "submit": Verb("experiments.submit:submit", "Queue an experiment."),
        "run": Verb("experiments.run:run", "Train one run here, without a service."),
        "watch": Verb("experiments.watch:watch", "Follow an experiment to its end."),
        "pause": Verb("experiments.actions:pause", "Pause an experiment, or a run."),
        "resume": Verb("experiments.actions:resume", "Continue paused runs from their checkpoints."),
        "cancel": Verb("experiments.actions:cancel", "Cancel an experiment, or a run."),
        "retry": Verb("experiments.actions:retry", "Queue failed or cancelled runs again."),
        "clone": Verb("experiments.actions:clone", "Queue an experiment again, or its best on fresh seeds."),
    },
    "Compare": {
        "ls": Verb("experiments.show:ls", "List experiments."),
        "runs": Verb("experiments.show:runs", "List runs of all experiments, filtered, any field a column."),
        "show": Verb("experiments.show:show", "Show an experiment with its runs, or a run."),
        "compare": Verb("experiments.compare:compare", "Compare the optimizers of an experiment, or of several."),
        "fit": Verb("experiments.compare:fit", "Fit scaling laws, and predict by them."),
        "logs": Verb("experiments.show:logs", "Show what a run printed."),
    },
    "Data": {
        "data": Verb("offline.data:verbs", "List, prepare and copy datasets."),
        "import": Verb("files.imports:import_runs", "Send runs of your own loop, or of other tools."),
        "models": Verb("offline.models:models", "List models, or show which optimizers fit your card."),
        "optimizers": Verb("offline.optimizers:optimizers", "List optimizers, show one, or check your own."),
    },
    "Share": {
        "edit": Verb("experiments.actions:edit", "Label an experiment, and write its note."),
        "delete": Verb("experiments.actions:delete", "Delete an experiment, or restore it."),
        "export": Verb("files.export:export", "Write results, series, figures, or a report."),
        "publish": Verb("files.bundles:publish", "Publish an experiment as a signed folder."),
        "verify": Verb("files.bundles:verify", "Check a published folder."),
    },
    "Service": {
        "up": Verb("admin.up:up", "Start the service; Ctrl-C stops it."),
        "doctor": Verb("admin.doctor:doctor", "Check this machine and its settings."),
        "db": Verb("admin.db:verbs", "Upgrade, check and back up the database."),
        "keys": Verb("admin.keys:verbs", "Make, list and revoke keys; read the audit log."),
    },
    "Experimental": {
        "study": Verb("studies.study:verbs", "Run the studies, each to the verdict on its claim."),
        "campaign": Verb("studies.campaign:verbs", "Try ideas under one error, and read the ledger."),
        "board": Verb("files.bundles:board", "Write a page of the verdicts of published folders."),
    },
}
HIDDEN = {
    "api": Verb("admin.api:api", "The api process of the service."),
    "dispatcher": Verb("admin.dispatcher:dispatcher", "The dispatcher process of the service."),
    "judge": Verb("experiments.compare:compare", "The earlier name of `compare`."),
    "sync": Verb("files.imports:import_runs", "The earlier name of `import`."),
}
"""Verbs that the supervisor starts, and earlier names that scripts have; `--help` leaves them out."""
VERBS = {name: verb for panel in PANELS.values() for name, verb in panel.items()} | HIDDEN


class LazyCommands(Mapping[str, Any]):
    """The commands by name, each made when it is looked at."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _load(name: str) -> Any:
    module, _, attribute = VERBS[name].place.partition(":")
    verb: Any = getattr(import_module(f"api.cli.{module}"), attribute)
    if isinstance(verb, typer.Typer):
        command: Any = get_group(verb)
    else:
        single = typer.Typer(add_completion=False)
        single.command(hidden=name in HIDDEN)(verb)
        command = get_command(single)
    command.name = name
    return command


class VerbGroup(TyperGroup):
    """`adapm-bench` itself."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", LazyCommands())

    def invoke(self, ctx: Any) -> Any:
        """Call the verb; an error of ours ends the command with its sentence. A host with some of the bench's extras
        alone has not all that every verb needs."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if f"{error.name}".partition(".")[0] in ("api", "dashboards", "optim", "orchestrator", "worker"):
                raise
            refuse(
                f"this needs {error.name}, which is not installed; in the project's folder run: pip install '.[all]'"
            )
        except OrchestratorError as error:
            fail(f"error: {error}")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the verbs by their summaries, without importing them."""
        shown = {
            name: TyperCommand(name, help=verb.summary, rich_help_panel=panel)
            for panel, verbs in PANELS.items()
            for name, verb in verbs.items()
        }
        listing = TyperGroup(name=self.name, help=self.help, params=self.params, commands=cast("Any", shown))
        listing.format_help(ctx, formatter)


main = typer.Typer(
    name="adapm-bench",
    cls=VerbGroup,
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
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help=f"A file that holds the key to the service; default: ${KEY_VARIABLE}."),
    ] = None,
) -> None:
    """Set up logging and the key before a verb."""
    if key_file is not None:
        os.environ.pop(KEY_VARIABLE, None)
        os.environ[KEY_FILE_VARIABLE] = str(key_file)
    try:
        own_key()
    except KeyUnreadableError as error:
        refuse(str(error))
