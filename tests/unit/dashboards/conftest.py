"""An experiment that was played through the real service, and a client for its pages."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from orchestrator.kinds.comparison import Candidate
from orchestrator.records import RunRecord
from orchestrator.services.composition import Services
from tests.factories.playing import DEMO, Player
from tests.factories.serving import application, open_services

HOSTILE = "<script>alert(1)</script> <b>&amp;\"'"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Services, Player]]:
    """Services on an empty database, and who plays their workers."""
    with open_services(tmp_path) as bench:
        yield bench


@pytest.fixture
def services(opened: tuple[Services, Player]) -> Services:
    """The services."""
    return opened[0]


@pytest.fixture
def player(opened: tuple[Services, Player]) -> Player:
    """Return the player of their workers."""
    return opened[1]


@pytest.fixture
def client(services: Services) -> Iterator[TestClient]:
    """A client for the pages."""
    with TestClient(application(services)) as test_client:
        yield test_client


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database with one experiment that was played to its end, once for all tests, and the experiment's id."""
    folder = tmp_path_factory.mktemp("played")
    candidates = (
        Candidate(optimizer="adamw", learning_rates=(2e-3, 4e-3, 1e3)),
        Candidate(optimizer="adapm", learning_rates=(2e-3, 4e-3), label=HOSTILE),
    )
    with open_services(folder) as (services, player):
        spec = DEMO.model_copy(update={"candidates": candidates, "name": HOSTILE})
        experiment = services.experiments.submit(spec).experiment
        player.finish()
    return folder / "bench.sqlite3", experiment.id


@pytest.fixture
def finished(services: Services, tmp_path: Path, played: tuple[Path, str]) -> str:
    """The id of a finished experiment with hostile names, of which AdamW diverges at one rate; the services have it."""
    database, experiment_id = played
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(tmp_path / "bench.sqlite3")) as target:
        source.backup(target)
    return experiment_id


@pytest.fixture
def runs(services: Services, finished: str) -> list[RunRecord]:
    """Its runs."""
    return list(services.runs.page(experiment_id=finished))
