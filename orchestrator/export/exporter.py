"""The duty that feeds the copy in MLflow (`mlflow.py`) from the outbox, entry by entry."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# MLflow loads it in the exporter's thread: while it is half loaded, SQLAlchemy fails in every other thread that makes a
# query, and the dispatcher would die of it.
import sqlalchemy.orm  # noqa: F401 - as above

from orchestrator.errors import OrchestratorError
from orchestrator.services.experiments import Experiments
from orchestrator.services.runs import Runs
from orchestrator.store.database import Database
from orchestrator.store.leadership import DELIVERY_RENEW_SECONDS, POLL_SECONDS, Duty, Leadership
from orchestrator.store.outgoing.exports import ExportOutbox, OutboxEntry

if TYPE_CHECKING:
    from orchestrator.export.mlflow import MlflowCopy

LONGEST_PAUSE_SECONDS = 60.0
"""While nothing can be delivered, one entry is tried this often."""
ROLE = "mlflow export"
"""The role of the exporter: one of all exporters on a database delivers, because two at once would both miss a run in
MLflow, and both create it."""
LEASE_SECONDS = 120.0
"""Longer than the longest call to MLflow: a try and another one, each given up after 20 s."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # The outbox tries again by itself; MLflow's own seven tries would hold one delivery for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


class Exporter(Duty):
    """Delivers the outbox to MLflow. MLflow may be away for hours: entries wait."""

    name = "mlflow-export"
    leadership: Leadership

    def __init__(
        self,
        experiments: Experiments,
        runs: Runs,
        database: Database,
        uri: str,
        artifacts_folder: Path,
        *,
        holder: str,
    ) -> None:
        """`holder` names this exporter among those on the database, as in `Leadership`."""
        self.leadership = Leadership(database, holder, LEASE_SECONDS, ROLE, DELIVERY_RENEW_SECONDS)
        self._outbox = ExportOutbox(database)
        self._experiments, self._runs = experiments, runs
        self._uri, self._artifacts_folder = uri, artifacts_folder
        self._copy: MlflowCopy | None = None
        self._pause_seconds = POLL_SECONDS

    def work(self) -> float:
        """Deliver some entries in their order. A failure ends the round, and the next one waits twice as long: nothing
        is gained by trying a thousand entries while MLflow is away."""
        entries = self._outbox.due(limit=20)
        for entry in entries:
            self.leadership.require()
            if not self._outbox.deliver(entry.id, entry, partial(self._write, entry)):
                self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
                return self._pause_seconds
        self._pause_seconds = POLL_SECONDS
        return 0.0 if entries else POLL_SECONDS

    def close(self) -> None:
        """Deliver what is ready, if this process leads."""
        with suppress(OrchestratorError):
            while self.leadership.keep() is not None and self.work() == 0.0:
                pass

    def _write(self, entry: OutboxEntry) -> None:
        if self._copy is None:
            for name, value in ENVIRONMENT.items():
                os.environ.setdefault(name, value)
            from orchestrator.export.mlflow import MlflowCopy  # a second and 100 MB, after the variables that it reads

            self._copy = MlflowCopy(
                self._experiments, self._runs, self._uri, self._artifacts_folder, before_batch=self.leadership.require
            )
        self._copy.write(entry)
