"""The stored data folder: an earlier version left it on 2026-01-05, with runs at work; today's application opens it."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from api.app import create_app
from orchestrator.services.composition import Services, compose_services
from orchestrator.settings import Settings
from orchestrator.store.database import Database

COUNTER = "orchestrator.specs.footprints.code_digest"
"""Names the footprints that are kept in the data folder by the code that counted them; here they are always known."""
ORIGIN = "http://127.0.0.1"
STORED = Path(__file__).parent / "data_folder.tar.xz"
NO_THROTTLE = 1e9


@dataclass(frozen=True)
class OpenedFolder:
    """A data folder with the application over it."""

    app: FastAPI
    services: Services
    database: Database


@contextmanager
def opened(folder: Path) -> Iterator[OpenedFolder]:
    """The application over a data folder, as `adapm-bench up` composes it, without a dispatcher."""
    settings = Settings(data_folder=folder)
    database = Database(settings.resolved_database_url())
    database.migrate()
    services = compose_services(database, settings)
    try:
        with patch(COUNTER, lambda: "stored"):
            yield OpenedFolder(create_app(services, requests_a_second=NO_THROTTLE), services, database)
    finally:
        database.close()


@contextmanager
def client_of(app: ASGIApp) -> Iterator[TestClient]:
    """Yield a client of the application; redirects are answers."""
    with TestClient(app, base_url=ORIGIN, follow_redirects=False, raise_server_exceptions=False) as client:
        yield client


def unpacked(folder: Path) -> Path:
    """The stored data folder, unpacked below an empty one."""
    target = folder / "data"
    with tarfile.open(STORED) as archive:
        archive.extractall(target, filter="data")
    return target
