"""All services on a database, as the processes compose them."""

from pathlib import Path
from typing import Any

from orchestrator.jobs import LeasePolicy
from orchestrator.services.composition import Services, compose_services
from orchestrator.settings import Settings
from orchestrator.store.database import Database


def make_services(
    database: Database, data_folder: Path = Path("/"), policy: LeasePolicy | None = None, **settings: Any
) -> Services:
    """Services on a migrated database; unless `settings` say otherwise they begin runs on a nearly full disk, too."""
    return compose_services(database, Settings(data_folder=data_folder, **({"free_bytes": 0} | settings)), policy)
