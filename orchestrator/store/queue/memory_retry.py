"""The next attempt of a run that ran out of memory: half the micro-batch, twice the accumulation, the same batch.

What is trained stays the same, so that the run does, too; each try is an attempt of its own, and not held against the
run. It ends at micro-batches of one sequence: then the worker's verdict is the result.
"""

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import DamagedError
from orchestrator.jobs import RunStatus
from orchestrator.store import integrity
from orchestrator.store.run_rows import RunRow
from orchestrator.store.tables import run_specs
from worker.spec.run import RunSpec


def halved(spec: RunSpec, cut_down_to: int | None) -> int | None:
    """Half the micro-batch of the last attempt, rounded up; None where it is not to be cut, or is one sequence."""
    asked = spec.workload.execution
    if not asked.retry_out_of_memory or asked.micro_batch_sequences == "auto":
        return None
    now = cut_down_to or asked.micro_batch_sequences or spec.share_sequences()
    return (now + 1) // 2 if now > 1 else None


def smaller(connection: Connection, run: RunRow, now: float) -> RunRow | None:
    """A live, locked run whose attempt ran out of memory, as it goes on; None where that is no way for it."""
    if run.status not in (RunStatus.LEASED, RunStatus.RUNNING):
        return None  # it was asked to stop
    row = connection.execute(sa.select(*integrity.stored_columns(run_specs)).where(run_specs.c.run_id == run.id)).one()
    try:
        spec = integrity.run_spec(row.spec, row.checksum)
    except DamagedError:
        return None  # the next claim tells it
    less = halved(spec, run.micro_batch_sequences)
    if less is None:
        return None
    reason = f"out of memory; the next attempt takes micro-batches of {less} {'sequence' if less == 1 else 'sequences'}"
    return replace(run, status=RunStatus.RETRY_WAIT, reason=reason, micro_batch_sequences=less, available_at=now)
