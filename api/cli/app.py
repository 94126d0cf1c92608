"""`adapm-bench`: every verb and every group of verbs, in the order of `--help`, and where its module is.

A verb's module is imported when somebody calls it, so that none waits for what another needs. `--help` lists all of
them and imports none: numpy, SQLAlchemy and the HTTP client, which they need together, take a second.
"""

import ast
import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from api.auth.client_key import KEY_FILE_VARIABLE, KEY_VARIABLE, KeyUnreadableError, own_key
from api.cli.console import refuse

VERBS = {
    "demo": "experiments.demo:demo",
    "up": "admin.up:up",
    "validate": "experiments.submit:validate",
    "submit": "experiments.submit:submit",
    "ls": "experiments.show:ls",
    "runs": "experiments.show:runs",
    "show": "experiments.show:show",
    "compare": "experiments.show:compare",
    "diff": "experiments.show:diff",
    "watch": "experiments.watch:watch",
    "logs": "experiments.show:logs",
    "cancel": "experiments.actions:cancel",
    "pause": "experiments.actions:pause",
    "resume": "experiments.actions:resume",
    "retry": "experiments.actions:retry",
    "label": "experiments.actions:label",
    "note": "experiments.actions:note",
    "delete": "experiments.actions:delete",
    "restore": "experiments.actions:restore",
    "clone": "experiments.actions:clone",
    "sync": "files.external:sync",
    "import": "files.imports:import_runs",
    "judge": "files.external:judge",
    "fit": "experiments.show:fit",
    "export": "files.export:export",
    "report": "files.export:report",
    "publish": "files.bundles:publish",
    "verify": "files.bundles:verify",
    "board": "files.bundles:board",
    "mlflow": "admin.up:mlflow",
    "mcp": "admin.mcp:mcp",
    "init": "experiments.specs:init",
    "schema": "experiments.specs:schema",
    "run": "experiments.run:run",
    "optimizers": "offline.optimizers:optimizers",
    "models": "offline.optimizers:models",
    "plan": "offline.memory:plan",
    "memory": "offline.memory:memory",
    "audit": "admin.keys:audit",
    "doctor": "doctor.doctor:doctor",
    "api": "admin.up:api_process",
    "dispatcher": "admin.up:dispatcher_process",
    "sweep-driver": "admin.up:driver_process",
    "sweep": "experiments.sweep:verbs",
    "study": "studies.study:verbs",
    "campaign": "studies.campaign:verbs",
    "webhook": "admin.webhook:verbs",
    "data": "offline.data:verbs",
    "optimizer": "offline.optimizers:verbs",
    "config": "admin.config:verbs",
    "db": "admin.db:verbs",
    "keys": "admin.keys:verbs",
}
PROCESSES = ("api", "dispatcher", "sweep-driver")
"""Of the service: nobody starts them by hand."""


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
    module, _, attribute = VERBS[name].partition(":")
    verb: Any = getattr(import_module(f"api.cli.{module}"), attribute)
    if isinstance(verb, typer.Typer):
        command: Any = get_group(verb)
    else:
        single = typer.Typer(add_completion=False)
        single.command(hidden=name in PROCESSES)(verb)
        command = get_command(single)
    command.name = name
    return command


class VerbGroup(TyperGroup):
    """`adapm-bench` itself."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", LazyCommands())

    def invoke(self, ctx: Any) -> Any:
        """Call the verb. A host with some of the bench's extras alone has not all that every verb needs."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if f"{error.name}".partition(".")[0] in ("api", "dashboards", "optim", "orchestrator", "worker"):
                raise
            refuse(
                f"this needs {error.name}, which is not installed; in the project's folder run: pip install '.[all]'"
            )

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the verbs by their docstrings, without importing them."""
        shown = {name: TyperCommand(name, help=summary(name)) for name in VERBS if name not in PROCESSES}
        listing = TyperGroup(name=self.name, help=self.help, params=self.params, commands=cast("Any", shown))
        listing.format_help(ctx, formatter)


def summary(name: str) -> str:
    """What a verb's docstring says, or the help of a group of verbs, read from the text of its module."""
    module, _, attribute = VERBS[name].partition(":")
    for statement in ast.parse((Path(__file__).parent / f"{module.replace('.', '/')}.py").read_text("utf-8")).body:
        match statement:
            case ast.FunctionDef(name=found) if found == attribute:
                return ast.get_docstring(statement) or ""
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Call(keywords=keywords)) if found == attribute:
                return next(str(ast.literal_eval(each.value)) for each in keywords if each.arg == "help")
    raise LookupError(VERBS[name])


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
    """What stands before a verb."""
    if key_file is not None:
        os.environ.pop(KEY_VARIABLE, None)
        os.environ[KEY_FILE_VARIABLE] = str(key_file)
    try:
        own_key()
    except KeyUnreadableError as error:
        refuse(str(error))
