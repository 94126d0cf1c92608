"""A service for as long as a verb lasts: the one that runs on the data folder, or one of the verb's own."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from api.cli.console import INTERRUPTED
from api.cli.service import exit_on_refusal
from api.processes.address import ServiceError, listen
from api.processes.data_folder import read_note
from api.processes.supervisor import Supervisor
from orchestrator.settings import Settings


@contextmanager
def own_service(settings: Settings, *, port_given: bool = False) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the service's URL, and a check that raises if the service has failed for good."""
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with exit_on_refusal():
            yield
    except KeyboardInterrupt:
        print("stopped; what was trained is kept, and the same command continues from there", flush=True)
        raise typer.Exit(INTERRUPTED) from None
