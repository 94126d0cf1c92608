"""Every import that the witnesses make of the product, in one place, and the clock that all of it reads.

A change that moves modules has to mend this file, and nothing else of the witnesses.
"""

import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from api.app import create_app
from api.cli import main as command_line
from optim.builder import build
from optim.catalog import entries
from orchestrator.kinds.registry import validate_spec
from orchestrator.services.composition import Services, compose_services
from orchestrator.settings import Settings
from orchestrator.specs.text import parse
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database
from worker.checks.tiny_models import batch, tiny_gpt2
from worker.spec.run import RunSpec

__all__ = [
    "NOW",
    "ORIGIN",
    "STORED",
    "OpenedFolder",
    "RunSpec",
    "batch",
    "build",
    "client_of",
    "command_line",
    "entries",
    "fields_of",
    "fixed_clock",
    "opened",
    "tiny_gpt2",
    "unpacked",
    "validate_spec",
]  # fmt: skip

COUNTER = "orchestrator.specs.footprints.code_digest"
"""Names the footprints that are kept in the data folder by the code that counted them; here they are always known."""
NOW = 1_767_614_400.0
"""2026-01-05 12:00 UTC: when the stored data folder was left, with runs at work."""
ORIGIN = "http://127.0.0.1"
STORED = Path(__file__).parent / "data_folder.tar.xz"
NO_THROTTLE = 1e9


@contextmanager
def fixed_clock() -> Iterator[None]:
    """Make it always `NOW` within the block: for Python, and for SQLite's `julianday('now')`."""

    def tell(connection: Any, _record: Any) -> None:
        connection.create_function("julianday", 1, lambda _: NOW / 86_400.0 + 2_440_587.5)

    sa.event.listen(sa.Engine, "connect", tell)
    try:
        with patch.object(time, "time", lambda: NOW):
            yield
    finally:
        sa.event.remove(sa.Engine, "connect", tell)


@dataclass(frozen=True)
class OpenedFolder:
    """A data folder with the application over it."""

    app: FastAPI
    services: Services
    database: Database

    def faults(self) -> tuple[str, ...]:
        """Return the findings of `adapm-bench db check`."""
        return maintenance.faults(self.database)


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
    shutil.rmtree(target, ignore_errors=True)
    with tarfile.open(STORED) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(target)
    return target


def fields_of(path: Path) -> dict[str, Any]:
    """Return the specification in a file."""
    return parse(path.read_text(), str(path))
