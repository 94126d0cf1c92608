"""The real web service for tests: uvicorn on a free loopback port over a real SQLite file, or over a given database."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.jobs import LeasePolicy
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.services.composition import Services
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.serving import StoppableServer, running
from tests.factories.stores import claim, sqlite_database
from worker.records.result import Result
from worker.spec.run import RunSpec


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
    policy = policy or LeasePolicy()
    with ExitStack() as stack:
        database = database or stack.enter_context(sqlite_database(folder))
        services = make_services(database, folder, policy, **settings)
        with running(StoppableServer(services)) as url:
            yield Service(**vars(services), url=url, queue=Queue(database, policy))


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


def submitted(service: Service, **changes: Any) -> str:
    """Submit such a comparison, and return its id."""
    spec = ComparisonSpec.model_validate(comparison_fields(**changes))
    return service.experiments.submit(spec).experiment.id


def end_all(service: Service, result_of: Callable[[RunSpec], Result]) -> None:
    """End every run that waits or follows, each with the result of its specification."""
    while leases := claim(service.queue, cpus=64, limit=64):
        for lease in leases:
            service.attempts.hello(lease.run_id, lease.attempt, lease.token)
            service.attempts.finish(lease.run_id, lease.attempt, lease.token, result_of(lease.spec))
