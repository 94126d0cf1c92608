"""The series of many runs at once: a figure of a thousand runs asks one thing of the database, not a thousand."""

from collections.abc import Iterator, Sequence

from orchestrator.columns import Columns
from orchestrator.store import series
from orchestrator.store.database import Database


class SeriesVerbs:
    """The verb of this file, for `Bench`, which brings the database."""

    _database: Database

    def many_series(self, run_ids: Sequence[str], fields: Sequence[str]) -> Iterator[tuple[str, Columns]]:
        """Each run that has points with the asked fields of its series, as `series` gives them, one in memory at a
        time; an id that names no run is left out."""
        with self._database.reading() as connection:
            yield from series.read_many(connection, run_ids, fields)
