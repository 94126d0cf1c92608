"""An experiment that was played through the real service, and a client for its pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from orchestrator.experiments import Candidate
from orchestrator.service import Bench
from orchestrator.studies.demo import DEMO
from tests.browser.playing import Player
from tests.browser.serving import application, opened_bench

HOSTILE = "<script>alert(1)</script> <b>&amp;\"'"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Bench, Player]]:
    """An empty bench and its player."""
    with opened_bench(tmp_path) as found:
        yield found


@pytest.fixture
def bench(opened: tuple[Bench, Player]) -> Bench:
    """The bench."""
    return opened[0]


@pytest.fixture
def player(opened: tuple[Bench, Player]) -> Player:
    """Its player."""
    return opened[1]


@pytest.fixture
def client(bench: Bench) -> Iterator[TestClient]:
    """A client for the pages."""
    with TestClient(application(bench)) as found:
        yield found


@pytest.fixture
def finished(bench: Bench, player: Player) -> str:
    """The id of a finished experiment with hostile names, of which AdamW diverges at one rate."""
    candidates = (
        Candidate(optimizer="adamw", learning_rates=(2e-3, 4e-3, 1e3)),
        Candidate(optimizer="adapm", learning_rates=(2e-3, 4e-3), label=HOSTILE),
    )
    experiment = bench.submit(
        DEMO.model_copy(update={"candidates": candidates, "name": HOSTILE, "unequal_grids": True})
    ).experiment
    player.finish()
    return experiment.id
