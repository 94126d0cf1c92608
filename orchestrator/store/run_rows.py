"""`RunRow`: a run as the queue knows it, the locks of rows, and the specifications to train.

Who holds the lock of a run's row may change everything of that run: its attempts, series and result. Nothing else may.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.errors import DamagedError
from orchestrator.jobs import ExperimentId, RunId, RunStatus, TimeLimit
from orchestrator.store import integrity
from orchestrator.store.database import Database
from orchestrator.store.ids import validate_id
from orchestrator.store.tables import run_specs, runs
from worker.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """What the queue knows of a run; the names are the columns'."""

    id: RunId
    experiment_id: ExperimentId
    status: RunStatus
    reason: str | None
    attempt: int
    failures: int
    available_at: float
    stop_requested_at: float | None
    max_seconds_from: float
    deadline_at: float | None
    limit_reached: TimeLimit | None
    micro_batch_sequences: int | None
    trace_parent: str | None
    stop_early: bool | None
    """Whether its sweep wants it to finish with what there is; null for runs that no sweep may stop."""
    started_at: float | None
    ended_at: float | None
    last_event: int
    cpus: int
    gpus: int
    processes: int
    step: int
    steps_total: int
    device_seconds: float
    last_train_loss: float | None
    last_val_loss: float | None
    tokens_per_second: float | None


COLUMNS = tuple(runs.c[field.name] for field in fields(RunRow))


def select_runs() -> sa.Select[Any]:
    """The query of `RunRow`s, to be narrowed."""
    return sa.select(*COLUMNS)


_BY_ID = select_runs().where(runs.c.id.in_(sa.bindparam("ids", expanding=True))).order_by(runs.c.id)
"""In the order of the ids: two transactions that lock several runs must take them in the same order."""
_LOCK_BY_ID = _BY_ID.with_for_update(of=runs)
_LOCK_FREE_BY_ID = _BY_ID.with_for_update(of=runs, skip_locked=True)
_SPECS = sa.select(*integrity.stored_columns(run_specs)).where(
    run_specs.c.run_id.in_(sa.bindparam("ids", expanding=True))
)


def lock(
    database: Database, connection: Connection, query: sa.Select[Any], *, wait: bool = True
) -> tuple[tuple[RunRow, ...], float]:
    """Lock the runs that `query`, made by `select_runs()`, finds, until the transaction ends: they and the database's
    time at that moment. Without `wait` only those that nobody has locked."""
    # PostgreSQL looks at a row of `runs` again after it has waited for it, so what is read here is the newest truth;
    # rows of joined tables may be older and have to be read again.
    rows = connection.execute(query.with_for_update(of=runs, skip_locked=not wait)).all()
    return tuple(RunRow(**row._mapping) for row in rows), database.read_clock(connection)


def lock_ids(
    database: Database, connection: Connection, ids: Iterable[str], *, wait: bool = True
) -> tuple[dict[str, RunRow], float]:
    """Lock the runs of these ids: those that exist (without `wait`: those free) and the database's time."""
    wanted = sorted({validate_id(id) for id in ids})
    rows = connection.execute(_LOCK_BY_ID if wait else _LOCK_FREE_BY_ID, {"ids": wanted}).all()
    return {row.id: RunRow(**row._mapping) for row in rows}, database.read_clock(connection)


def trainable_specs(
    connection: Connection, ids: Sequence[RunId]
) -> dict[RunId, RunSpec | ValidationError | DamagedError]:
    """The specification of each of these runs, or what is wrong with it: that it would be refused today, or that it is
    not what was written."""
    found: dict[RunId, RunSpec | ValidationError | DamagedError] = {id: DamagedError("is missing") for id in ids}
    for row in connection.execute(_SPECS, {"ids": list(ids)}) if ids else ():
        try:
            found[row.run_id] = integrity.valid_run_spec(row.spec, row.checksum)
        except (ValidationError, DamagedError) as error:
            found[row.run_id] = error
    return found


def lock_run(database: Database, connection: Connection, run_id: str) -> tuple[RunRow, float] | None:
    """Lock one run: its row and the database's time; None where there is no such run."""
    found, now = lock_ids(database, connection, [run_id])
    return (found[run_id], now) if run_id in found else None
