"""The real web service for tests: uvicorn on a free loopback port over a real SQLite file, or over a given database."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from api.app import create_app
from api.processes.api import server_config
from orchestrator.jobs import LeasePolicy
from orchestrator.services.composition import Services
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.serving import listen
from tests.factories.stores import sqlite_database


@dataclass(frozen=True, kw_only=True)
class Service(Services):
    """Services that answer at `url`, and the dispatcher's side of the same database."""

    url: str
    queue: Queue


@contextmanager
def serving(
    folder: Path, policy: LeasePolicy | None = None, database: Database | None = None, **settings: Any
) -> Iterator[Service]:
    """Serve a fresh database in `folder`, or the given one, until the block ends."""
    database = database or sqlite_database(folder)
    policy = policy or LeasePolicy()
    services = make_services(database, folder, policy, **settings)
    listener = listen()
    stopping = threading.Event()
    app = create_app(services, stopping=stopping.is_set)
    server = uvicorn.Server(server_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Service(
            **vars(services), url=f"http://127.0.0.1:{listener.getsockname()[1]}", queue=Queue(database, policy)
        )
    finally:
        stopping.set()
        server.should_exit = True
        thread.join(10)
        listener.close()
        database.close()
    assert not thread.is_alive(), "the server did not end"


def comparison_fields(**changes: Any) -> dict[str, Any]:
    """A small valid comparison as a user writes it: 2 optimizers × 1 rate × 2 seeds = 4 runs."""
    fields: dict[str, Any] = {
        "name": "small",
        "workload": {"model": "gpt2-tiny", "budget": {"steps": 10, "batch_sequences": 2}},
        "candidates": [
            {"optimizer": "adamw", "learning_rates": [0.002]},
            {"optimizer": "adapm", "learning_rates": [0.002]},
        ],
        "seeds": [1, 2],
    }
    return fields | changes
