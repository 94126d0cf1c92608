"""A site to look at: the real application over the real service on SQLite, served by uvicorn on a free port."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response

from api.app import create_app
from api.processes.api import server_config
from dashboards.data.reader import Reader
from dashboards.pages.routes import pages
from orchestrator.errors import NotFoundError
from orchestrator.jobs import LeasePolicy
from orchestrator.services.composition import Services
from orchestrator.store.queue.queue import Queue
from orchestrator.studies.reports import Studies
from tests.factories.playing import Player
from tests.factories.services import make_services
from tests.factories.stores import sqlite_database
from tests.factories.waiting import until


@dataclass(frozen=True, kw_only=True)
class Site(Services):
    """Services behind an address, and who plays their workers."""

    url: str
    player: Player


class StoppableServer(uvicorn.Server):
    """Serves the application as `adapm-bench up` does: open streams end before it does."""

    def __init__(self, services: Services, root_path: str = "") -> None:
        super().__init__(server_config(create_app(services, stopping=lambda: self.should_exit), root_path))


@contextmanager
def open_services(folder: Path) -> Iterator[tuple[Services, Player]]:
    """Services on an empty database in a folder, and who plays their workers."""
    with sqlite_database(folder) as database:
        services = make_services(database, folder, LeasePolicy())
        yield services, Player(services, Queue(database, LeasePolicy()))


def listen() -> socket.socket:
    """A socket that listens on a free port of this host, for as long as it is open."""
    # With the protocol named, asyncio sets TCP_NODELAY on connections; without it every answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


@contextmanager
def running(server: uvicorn.Server, listener: socket.socket | None = None) -> Iterator[str]:
    """Run a server in a thread until the block ends, on a free port or on the listener, which it closes; its URL."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener or listen()]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "uvicorn has started")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
    assert not thread.is_alive(), "the server did not end"


@contextmanager
def served(folder: Path, listener: socket.socket | None = None, root_path: str = "") -> Iterator[Site]:
    """An empty service behind a real server, until the block ends; of servers on one listener each is the next."""
    with open_services(folder) as (services, player):
        server = StoppableServer(services, root_path)
        with running(server, listener and listener.dup()) as url:
            yield Site(**vars(services), url=url + root_path, player=player)


def application(services: Services) -> FastAPI:
    """The pages alone, for tests that need no server."""
    app = FastAPI()
    studies = Studies(services.experiments, services.runs, services.analysis, services.storage.studies_folder())
    reader = Reader(services)
    app.include_router(pages(services, studies, reader))

    @app.exception_handler(NotFoundError)
    def missing(request: Request, error: NotFoundError) -> Response:
        return Response(str(error), status_code=404)

    return app
