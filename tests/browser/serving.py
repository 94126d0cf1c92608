"""A site to look at: the real application over the real service on SQLite, served by uvicorn on a free port."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response

from api.app import create_app
from dashboards.pages.routes import pages
from orchestrator.errors import NotFoundError
from orchestrator.jobs import LeasePolicy
from orchestrator.services.bench import Bench
from orchestrator.store.queue.queue import Queue
from tests.browser.playing import Player
from tests.factories.stores import sqlite_database


@dataclass(frozen=True)
class Site:
    """The address of a served bench, the bench, and who plays its workers."""

    url: str
    bench: Bench
    player: Player


class StoppableServer(uvicorn.Server):
    """Serves the application as `adapm-bench up` does: open streams end before it does."""

    def __init__(self, bench: Bench) -> None:
        app = create_app(bench, stopping=lambda: self.should_exit)
        super().__init__(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))


@contextmanager
def opened_bench(folder: Path) -> Iterator[tuple[Bench, Player]]:
    """An empty bench in a folder."""
    database = sqlite_database(folder)
    policy = LeasePolicy()
    bench = Bench(database, policy, folder / "runs", folder / "datasets")
    try:
        yield bench, Player(bench, Queue(database, policy))
    finally:
        database.close()


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """An empty bench behind a real server, until the block ends."""
    with opened_bench(folder) as (bench, player):
        server = StoppableServer(bench)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield Site(url=_address(server), bench=bench, player=player)
        finally:
            server.should_exit = True
            thread.join(timeout=10)


def application(bench: Bench) -> FastAPI:
    """The pages alone, for tests that need no server."""
    app = FastAPI()
    app.include_router(pages(bench))

    @app.exception_handler(NotFoundError)
    def missing(request: Request, error: NotFoundError) -> Response:
        return Response(str(error), status_code=404)

    return app


def _address(server: uvicorn.Server) -> str:
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline, "uvicorn did not start within ten seconds"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}"
