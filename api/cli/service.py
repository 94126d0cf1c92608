"""How the verbs reach the service, or start one for as long as they last, and how refusals become exit codes.

Verbs without a service load no client.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Never

import typer
from pydantic import ValidationError

from api.cli.console import BAD_INPUT, FAILED, INTERRUPTED, UNREACHABLE, complain, fail
from api.processes.data_folder import read_note
from optim import catalog
from optim.errors import OptimError
from orchestrator.errors import OrchestratorError, SettingsError
from orchestrator.settings import Settings, setting_source, unknown_variables

if TYPE_CHECKING:
    from api.client.client import Client

URL_VARIABLE = "ADAPM_BENCH_URL"
THERE_IS_NO = re.compile(r"there is no (?!run)")
NOT_FOUND = "urn:adapm-bench:problem:not-found"

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help=f"The service; default: ${URL_VARIABLE}, else the one on the data folder.", metavar="URL"
    ),
]
Data = Annotated[Path | None, typer.Option("--data", help="Data folder; default: .adapm-bench in the current folder.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")]
Slots = Annotated[int | None, typer.Option(min=1, help="CPUs that runs may use at once; default: all usable ones.")]


def environment_settings(**flags: object) -> Settings:
    """The settings in force, with the given flags over them; faults end the command, with a line for each."""
    settings = read_settings()
    if not isinstance(settings, Settings):
        fail("\n".join(settings), BAD_INPUT)
    return settings.model_copy(update={name: flag for name, flag in flags.items() if flag is not None})


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
    where = setting_source(name) or name
    if kind == "extra_forbidden":
        return f"{where}: no setting has that name; docs/settings.md lists them"
    if kind == "remote_folder":  # what is refused may hold a secret
        value = re.sub(r"//.*@", "//***@", str(value))
        value = re.sub(r"(//[^@/]*:|\?).*", r"\1***", value)
    return f"{where}={value}: {message.replace('Input should', 'must')}"


def service_url(given: str | None) -> str:
    """The service's address: the one given, else the environment's, else the one that `up` noted in the data folder.
    Without a note the command ends: another service may listen on the usual port, with other data."""
    if url := given or os.environ.get(URL_VARIABLE):
        return url
    folder = environment_settings().data_folder
    if (note := read_note(folder)) is not None:
        return note.url
    return fail(
        f"no service runs on {folder.absolute()}\n"
        f"start one with `adapm-bench up`, or name another with --url or ${URL_VARIABLE}",
        UNREACHABLE,
    )


@contextmanager
def open_client(url: str | None, *, retries: int = 1, listed_by: str = "ls") -> Iterator["Client"]:
    """A client of the service; what it raises ends the command with a sentence and an exit code. `listed_by` is the
    verb that lists the ids which the command takes."""
    from api.client.client import Client  # loads httpx: verbs without a service start faster

    with exit_on_refusal(listed_by), Client(service_url(url), retries=retries, short_ids=True) as client:
        yield client


def print_hindrance(client: "Client") -> None:
    """Say on standard error why the service begins no run now, a full disk for instance, if anything is in the way."""
    if hindrance := client.health().hindrance:
        complain(hindrance)


@contextmanager
def exit_on_refusal(listed_by: str = "ls") -> Iterator[None]:
    """End the command with what the service said, where it refuses or does not answer."""
    from api.client.messages import ClientError, InputError  # as above

    try:
        yield
    except ClientError as error:
        complain(str(error))
        if error.status is None and not isinstance(error, InputError):
            fail("start one with `adapm-bench up`, or name another with --url", UNREACHABLE)
        # It lists no runs, nor what one experiment has.
        if error.kind == NOT_FOUND and not error.near and THERE_IS_NO.search(str(error)):
            complain(f"`adapm-bench {listed_by}` lists the ids that there are")
        if error.status == 401:
            complain("set $ADAPM_BENCH_KEY, or name a file with the key: adapm-bench --key-file FILE …")
        raise typer.Exit(BAD_INPUT if error.status in (None, 400, 413, 422) else FAILED) from None


@contextmanager
def exit_on_errors(*others: type[Exception]) -> Iterator[None]:
    """End the command with the sentence of an error of ours."""
    ours: tuple[type[Exception], ...] = (OrchestratorError, *others)
    try:
        yield
    except ours as error:
        fail(f"error: {error}")


@contextmanager
def own_service(settings: Settings, *, port_given: bool = False) -> Iterator[tuple[str, Callable[[], None]]]:
    """Its URL, and a check that raises where it has failed for good."""
    from api.processes.address import ServiceError, listen  # SQLAlchemy, for verbs that start none
    from api.processes.supervisor import Supervisor

    if (note := read_note(settings.data_folder)) is not None:
        print(f"using the service that runs on {settings.data_folder.absolute()}")
        yield note.url, lambda: None
        return
    print("starting the service: api, dispatcher with an embedded Ray, SQLite, MLflow", flush=True)
    if not port_given:
        try:
            listen(settings.host, settings.port).close()
        except ServiceError as error:
            print(f"{str(error).partition(';')[0]}; taking another one")
            settings = settings.model_copy(update={"port": 0})
    with Supervisor(settings) as running:
        yield running.url, running.check
        print("stopping the service", flush=True)


@contextmanager
def exit_in_order() -> Iterator[None]:
    """End the command with a sentence where the service refuses or fails, and on Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with exit_on_refusal(), exit_on_errors():
            yield
    except KeyboardInterrupt:
        print("stopped; what was trained is kept, and the same command continues from there", flush=True)
        raise typer.Exit(INTERRUPTED) from None


def _interrupt(_number: int, _frame: FrameType | None) -> Never:
    raise KeyboardInterrupt
