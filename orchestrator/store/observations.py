"""Observations: what the probes of a run saw, one compressed row for each (attempt, step, probe)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
import structlog
import zstandard
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from orchestrator.errors import DamagedError
from orchestrator.store import integrity
from orchestrator.store.tables import observations
from worker.record import Observation

log = structlog.get_logger(__name__)


def append(connection: Connection, run_id: str, attempt: int, seen: Sequence[Observation]) -> None:
    """Add what a batch brought; what the attempt brought before stays as it is."""
    rows = [
        {
            "run_id": run_id,
            "attempt": attempt,
            "step": one.step,
            "probe": one.probe,
            "blocks": blocks,
            "checksum": integrity.checksum(blocks),
        }
        for one in seen
        for blocks in [zstandard.compress(json.dumps(one.blocks).encode())]
    ]
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(dialect.insert(observations).on_conflict_do_nothing(), rows)


def read(
    connection: Connection, run_id: str, *, after_step: int = -1, most_steps: int | None = None
) -> tuple[Observation, ...]:
    """Observations by step and probe, of at most so many steps beyond `after_step`, each that of the newest attempt;
    damaged ones are left out (`maintenance.py` finds them)."""
    mine = (observations.c.run_id == run_id) & (observations.c.step > after_step)
    steps = sa.select(observations.c.step).where(mine).distinct().order_by(observations.c.step).limit(most_steps)
    query = sa.select(observations).where(mine, observations.c.step.in_(steps.scalar_subquery()))
    rows = connection.execute(query.order_by(observations.c.attempt)).all()
    newest = {(row.step, row.probe): row for row in rows}
    return tuple(_observations(newest[key] for key in sorted(newest)))


def _observations(rows: Iterable[sa.Row[Any]]) -> Iterator[Observation]:
    for row in rows:
        try:
            blocks = integrity.blocks(row.blocks, row.checksum)
        except DamagedError as error:
            log.warning("an observation is left out", run=row.run_id, step=row.step, probe=row.probe, error=str(error))
        else:  # not validated again: what is stored was validated when it came in
            yield Observation.model_construct(step=row.step, probe=row.probe, blocks=blocks)
