"""The service that a verb works with: the one that runs on the data folder, or one for as long as the verb lasts."""

import contextlib
from collections.abc import Callable, Iterator

from api.processes.data_folder import read_note
from api.processes.supervisor import ServiceError, Supervisor, listen
from orchestrator.settings import Settings


@contextlib.contextmanager
def service(settings: Settings, *, port_given: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """Its URL, and a check that raises where it has failed for good."""
    if (note := read_note(settings.data_folder)) is not None:
        print(f"using the service that runs on {settings.data_folder.absolute()}")
        yield note.url, lambda: None
        return
    print("starting the service: api, dispatcher with an embedded Ray, SQLite, MLflow", flush=True)
    if not port_given and not _free(settings):
        print(f"port {settings.port} is taken; using another one")
        settings = settings.model_copy(update={"port": 0})
    with Supervisor(settings) as running:
        yield running.url, running.check
        print("stopping the service", flush=True)


def _free(settings: Settings) -> bool:
    try:
        listen(settings.host, settings.port).close()
    except ServiceError:
        return False
    return True
