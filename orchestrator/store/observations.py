"""Observations: what the probes of a run saw, one compressed row for each (attempt, step, probe)."""

import json
from collections.abc import Sequence

import sqlalchemy as sa
import zstandard
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from orchestrator.store.tables import observations
from worker.record import Observation


def append(connection: Connection, run_id: str, attempt: int, seen: Sequence[Observation]) -> None:
    """Add what a batch brought; what the attempt brought before stays as it is."""
    rows = [
        {
            "run_id": run_id,
            "attempt": attempt,
            "step": one.step,
            "probe": one.probe,
            "blocks": zstandard.compress(json.dumps(one.blocks).encode()),
        }
        for one in seen
    ]
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(dialect.insert(observations).on_conflict_do_nothing(), rows)


def read(
    connection: Connection, run_id: str, *, after_step: int = -1, most_steps: int | None = None
) -> tuple[Observation, ...]:
    """Observations by step and probe, of at most so many steps beyond `after_step`, each that of the newest attempt."""
    mine = (observations.c.run_id == run_id) & (observations.c.step > after_step)
    steps = sa.select(observations.c.step).where(mine).distinct().order_by(observations.c.step).limit(most_steps)
    query = sa.select(observations).where(mine, observations.c.step.in_(steps.scalar_subquery()))
    rows = connection.execute(query.order_by(observations.c.attempt)).all()
    newest = {(row.step, row.probe): row for row in rows}
    return tuple(_observation(newest[key]) for key in sorted(newest))


def _observation(row: "sa.Row[tuple[str, int, int, str, bytes]]") -> Observation:
    # Not validated again: what is stored was validated when it came in.
    blocks = json.loads(zstandard.decompress(row.blocks))
    return Observation.model_construct(step=row.step, probe=row.probe, blocks=blocks)
