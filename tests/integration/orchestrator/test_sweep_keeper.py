"""The keeper of sweeps: a driver for each live sweep, another one where it dies, none for a sweep that ended."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from orchestrator.jobs import ExperimentId
from orchestrator.store.database import Database
from orchestrator.store.leadership import LeaderLoop, Leadership
from orchestrator.store.queue import trials
from orchestrator.sweeps.keeper import MOST_DRIVERS, ROLE, DriverOrder, SweepKeeper
from tests.chaos.processes import living
from tests.factories.services import make_services
from tests.factories.stores import sqlite_database
from tests.factories.sweep import sweep_spec
from tests.factories.waiting import until

DRIVER = "import sys; print(sys.stdin.readline(), flush=True); sys.stdin.read()"
"""Repeats its order into its log, and ends with its standard input."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as database:
        yield database


@pytest.fixture
def keeper(database: Database, tmp_path: Path) -> Iterator[SweepKeeper]:
    def order(sweep_id: ExperimentId) -> DriverOrder:
        return DriverOrder(
            sweep_id=sweep_id, database_url="postgresql://name:secret@host", ray_address="here", folder="there"
        )

    keeper = SweepKeeper(
        database, Leadership(database, "me", role=ROLE), [sys.executable, "-c", DRIVER], order, tmp_path / "logs"
    )
    loop = LeaderLoop(keeper)
    loop.start()
    yield keeper
    loop.close()
    assert drivers() == []


def drivers() -> list[psutil.Process]:
    processes = []
    for process in living(psutil.Process().children()):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if DRIVER in process.cmdline():
                processes.append(process)
    return processes


def submit(database: Database, tmp_path: Path) -> ExperimentId:
    services = make_services(database, tmp_path)
    return ExperimentId(services.experiments.submit(sweep_spec()).experiment.id)


def test_a_sweep_has_one_driver_until_it_ends(keeper: SweepKeeper, database: Database, tmp_path: Path) -> None:
    sweep_id = submit(database, tmp_path)
    log = tmp_path / "logs" / f"sweep-{sweep_id}.log"
    until(lambda: sweep_id in log.read_text(), "its driver has begun")
    (first,) = drivers()
    assert not any("secret" in word for word in first.cmdline()), "a password is no argument: everybody can read those"
    first.kill()
    until(lambda: drivers() not in ([], [first]), "another one has its place")
    (second,) = drivers()
    trials.close(database, sweep_id)
    second.terminate()  # as a driver that is done ends by itself
    until(lambda: not drivers(), "it has ended")
    keeper.work()
    assert drivers() == []


def test_more_sweeps_than_drivers_wait_for_their_turn(keeper: SweepKeeper, database: Database, tmp_path: Path) -> None:
    ids = [submit(database, tmp_path) for _ in range(MOST_DRIVERS + 1)]
    until(lambda: len(drivers()) == MOST_DRIVERS, "as many as may run do")
    waiting = tmp_path / "logs" / f"sweep-{ids[-1]}.log"
    assert not waiting.exists()
    trials.close(database, ids[0])
    until(waiting.exists, "the next one has its turn")
