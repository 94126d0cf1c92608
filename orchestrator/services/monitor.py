"""`Monitor`: how the whole service is: what is going on, what is counted, why nothing starts, whether it answers."""

from orchestrator.activity import Activity
from orchestrator.dispatch.disk import nearest_folder, shortage
from orchestrator.records import ServiceMetrics
from orchestrator.storage import Storage
from orchestrator.store import activity, reads
from orchestrator.store.database import Database
from orchestrator.store.queue.capacity import Node
from orchestrator.store.queue.queue import read_largest_nodes

DATABASE_FULL = (
    "the database has no room: submissions are refused, and trainings keep their reports; make room on its disk, and "
    "the service goes on by itself"
)
MOST_WAITING = 1_000
"""The most waiting runs that are shown, however many are asked for."""


class Monitor:
    """A monitor of a database and its data folder's disk. Thread-safe; every method may raise `StoreError`."""

    def __init__(self, database: Database, storage: Storage, *, free_bytes: int = 0) -> None:
        """`free_bytes`: with less free space no run is begun."""
        self._database, self._storage, self._free_bytes = database, storage, free_bytes

    def version(self) -> int:
        """Return a number that grows with every visible change: a new state, points, progress. Cheap."""
        with self._database.reading() as connection:
            return reads.version(connection)

    def activity(self, *, waiting: int = 100) -> Activity:
        """Return the current activity: runs at work, the head of the queue, recent failures, leaders."""
        with self._database.reading() as connection:
            return activity.activity(self._database, connection, waiting=max(1, min(waiting, MOST_WAITING)))

    def largest_nodes(self) -> tuple[Node, ...]:
        """Return the largest machines of the cluster, for which larger runs wait; empty while no dispatcher runs."""
        with self._database.reading() as connection:
            return read_largest_nodes(self._database, connection)

    def metrics(self) -> ServiceMetrics:
        """Return the number of runs, attempts and reports, for metrics."""
        with self._database.reading() as connection:
            return activity.service_metrics(self._database, connection)

    def dispatch_blocker(self) -> str | None:
        """Return the reason why no waiting run starts now, for all to see; None if there is none."""
        if reason := shortage(nearest_folder(self._storage.runs_folder()), self._free_bytes):
            return reason
        return DATABASE_FULL if self._database.is_full() else None
