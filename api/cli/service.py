"""How the verbs reach the service, and how its refusals become exit codes."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Never

import typer
from pydantic import ValidationError

from api.cli.console import complain, plain
from optim import catalog
from optim.errors import OptimError
from orchestrator.errors import SettingsError
from orchestrator.settings import Settings, place, unknown_variables

if TYPE_CHECKING:
    from api.client.client import Client, ClientError

FAILED = 1
"""Not found, failed, refused."""
BAD_INPUT = 2
UNREACHABLE = 3
INTERRUPTED = 130
"""What shells give a command that Ctrl-C ended: 128 + SIGINT."""

DELETED = "urn:adapm-bench:problem:deleted"
"""The kind of problem that says the way back of a deleted experiment: no run is looked for by that id."""

URL_VARIABLE = "ADAPM_BENCH_URL"

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help=f"The service; default: ${URL_VARIABLE}, else the one on the data folder.", metavar="URL"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def environment_settings() -> Settings:
    """The settings in force; what cannot be understood ends the command with a line each."""
    understood = read_settings()
    if isinstance(understood, Settings):
        return understood
    for sentence in understood:
        complain(plain(sentence))
    raise typer.Exit(BAD_INPUT)


def read_settings() -> Settings | tuple[str, ...]:
    """The settings in force, or a sentence for each of their faults."""
    if strangers := unknown_variables(os.environ):
        return strangers
    try:
        catalog.entries()
        return Settings()
    except (OptimError, SettingsError) as error:
        return (str(error),)
    except ValidationError as error:
        return tuple(
            setting_fault(str(fault["loc"][-1]), fault["input"], fault["type"], fault["msg"])
            for fault in error.errors(include_url=False)
        )


def setting_fault(name: str, value: object, kind: str, message: str) -> str:
    """One fault of the settings as a sentence: where it stands, the value, what is allowed."""
    found = place(name)
    where = found.text if found else name
    if kind == "extra_forbidden":
        return f"{where}: no setting has that name; docs/settings.md lists them"
    if kind == "remote_folder":  # what is refused may hold a secret
        value = re.sub(r"//.*@", "//***@", str(value))
        value = re.sub(r"(//[^@/]*:|\?).*", r"\1***", value)
    return f"{where}={value}: {message.replace('Input should', 'must')}"


def service_url(given: str | None, settings: Settings | None = None) -> str:
    """Where the service is: as given, else by the environment, else as `up` noted it, else the default port here."""
    if url := given or os.environ.get(URL_VARIABLE):
        return url
    from api.processes.data_folder import read_note

    settings = settings or environment_settings()
    note = read_note(settings.data_folder)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return note.url if note else f"http://{host}:{settings.port}"


@contextmanager
def open_client(url: str | None, *, retries: int = 1) -> Iterator["Client"]:
    """A client of the service; what it raises ends the command with a sentence and an exit code."""
    from api.client.client import Client, ClientError

    try:
        with Client(service_url(url), retries=retries, short_ids=True) as client:
            yield client
    except ClientError as error:
        fail(error)


def fail(error: "ClientError") -> Never:
    """Say what the service said, and leave with the exit code for it."""
    from api.client.answers import InputError

    for line in str(error).splitlines():
        complain(plain(line))
    if isinstance(error, InputError):
        raise typer.Exit(BAD_INPUT)
    if error.status is None:
        complain("start one with `adapm-bench up`, or name another with --url")
        raise typer.Exit(UNREACHABLE)
    if error.status == 401:
        complain("give the key in $ADAPM_BENCH_KEY, or a file with it: adapm-bench --key-file FILE …")
    raise typer.Exit(BAD_INPUT if error.status in (400, 413, 422) else FAILED)
