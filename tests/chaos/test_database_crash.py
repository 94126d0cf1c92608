"""Accepted data outlives a crash of the database, and nobody sends it again."""

from pathlib import Path

import pytest

from orchestrator.jobs import LeasePolicy
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import batch, claim, comparison_spec, postgresql_process, require_postgresql


@pytest.mark.postgres
def test_accepted_points_outlive_kill_9_of_postgresql(tmp_path: Path) -> None:
    """A worker forgets a batch once it is accepted, so a commit that is not on disk by then is lost for good."""
    with postgresql_process(require_postgresql()) as server:
        database = Database(server.url)
        database.migrate()
        services = make_services(database, tmp_path)
        try:
            services.experiments.submit(comparison_spec(seeds=(1,)))
            (lease,) = claim(Queue(database, LeasePolicy()), cpus=1, limit=1)
            services.attempts.hello(lease.run_id, lease.attempt, lease.token)
            for sequence in range(5):
                services.attempts.append_points(
                    lease.run_id, lease.attempt, lease.token, batch(sequence, [sequence + 1])
                )
            server.kill()
            server.start()
            assert [point.step for point in services.runs.points(lease.run_id)] == [1, 2, 3, 4, 5]
        finally:
            database.close()
