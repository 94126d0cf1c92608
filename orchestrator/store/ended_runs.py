"""`EndedRuns`: the records of ended runs, which are read and checked once. An answer over a thousand runs rests on
them: most of what it costs otherwise is reading the same results again.

A run's version grows with every visible change, a retry included: what is remembered under it is what the row says.
"""

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from orchestrator.jobs import TERMINAL
from orchestrator.records import RunFilter, RunRecord
from orchestrator.store import reads

MOST_RUNS = 4_096
"""That are kept, at some 11 kB each."""
FEW = 256
"""So many at most are asked for one by one; for more of them the whole experiment is read."""


class EndedRuns:
    """Thread-safe: what two threads put in at once is the same."""

    def __init__(self, most: int = MOST_RUNS) -> None:
        self._most = most
        self._known: dict[str, tuple[int, RunRecord]] = {}
        """Run → its version, and the record of that version or a later one."""

    def of(self, connection: Connection, experiment_id: str) -> tuple[RunRecord, ...]:
        """All runs of an experiment, by position. Raises `NotFoundError`."""
        versions = reads.run_versions(connection, experiment_id)
        found = {id: known[1] for id, version in versions.items() if (known := self._at(id, version)) is not None}
        lacking = [id for id in versions if id not in found]
        read = self._read(connection, experiment_id, lacking)
        ended = {run.id: (versions[run.id], run) for run in read if run.status in TERMINAL and run.id in versions}
        if len(self._known) + len(ended) > self._most:
            self._known = {}
        if len(ended) <= self._most:
            self._known |= ended
        found |= {run.id: run for run in read}
        return tuple(found[id] for id in versions)

    def _at(self, run_id: str, version: int) -> tuple[int, RunRecord] | None:
        known = self._known.get(run_id)
        return known if known is not None and known[0] == version else None

    @staticmethod
    def _read(connection: Connection, experiment_id: str, lacking: Sequence[str]) -> Sequence[RunRecord]:
        if len(lacking) <= FEW:
            return reads.runs_of(connection, lacking) if lacking else ()
        where = RunFilter(experiment_id=experiment_id)
        return reads.run_page(connection, where=where, sort=None, limit=None, after=None)
