"""The store's two databases: every contract test of the store runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.jobs import Lease, LeasePolicy
from orchestrator.services.composition import Services
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import DATABASES, claim, comparison_spec, requested_database

POLICY = LeasePolicy(ttl_seconds=30, heartbeat_seconds=5, max_failures=3, backoff_seconds=4, cancel_grace_seconds=20)


@dataclass(frozen=True, kw_only=True)
class Store(Services):
    """A database with the user's and the worker's services, and the dispatcher's side of it."""

    queue: Queue

    def follow(self) -> int:
        """Queue what follows from the runs that have ended, as the dispatcher does each round."""
        return FollowUps(self.database).follow()

    def claim(self, *, cpus: int, limit: int, gpus: int = 0) -> tuple[Lease, ...]:
        """Queue what follows, then claim for a cluster of one node."""
        return claim(self.queue, cpus=cpus, gpus=gpus, limit=limit)

    def submit(self, **changes: Any) -> list[str]:
        """Submit a small comparison; the ids of its runs."""
        experiment = self.experiments.submit(comparison_spec(**changes)).experiment
        return [run.id for run in self.runs.page(experiment_id=experiment.id)]

    def start(self) -> Lease:
        """Claim the head of the queue and say hello."""
        (lease,) = self.start_next(1)
        return lease

    def start_next(self, count: int) -> tuple[Lease, ...]:
        """Claim the next runs of the queue and say hello for each; at most `count`."""
        leases = self.claim(cpus=64, gpus=8, limit=count)
        for lease in leases:
            self.attempts.hello(lease.run_id, lease.attempt, lease.token)
        return leases

    def pass_time(self, seconds: float) -> None:
        """Move the database's clock, in steps short enough that the reaper does not think that it has slept."""
        while seconds > 0:
            step = min(seconds, POLICY.ttl_seconds / 2)
            self.queue.reap()
            self.database.clock_offset_seconds += step
            seconds -= step


def open_store(database: Database) -> Store:
    """The store on a migrated database, with the grace after its start behind it."""
    services = make_services(database, policy=POLICY)
    store = Store(**vars(services), queue=Queue(database, POLICY))
    store.pass_time(2 * POLICY.ttl_seconds)
    return store


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh, migrated database of either kind."""
    with requested_database(request, tmp_path) as database:
        yield database


@pytest.fixture
def store(database: Database) -> Store:
    """A fresh store of either kind."""
    return open_store(database)
