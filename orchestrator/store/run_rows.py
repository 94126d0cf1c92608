"""`RunRow`: a run as the queue knows it, the locks of rows, who holds a run's lease, and the specifications to train.

Who holds the lock of a run's row may change everything of that run: its attempts, series and result. Nothing else may.
Of a lease's token only the hash is stored; an unknown run, attempt or token all look the same from outside.
"""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.errors import DamagedError
from orchestrator.jobs import LIVE, AttemptOutcome, ExperimentId, RunId, RunStatus, TimeLimit
from orchestrator.store import integrity
from orchestrator.store.database import Database
from orchestrator.store.ids import experiment_not_found, validate_id
from orchestrator.store.tables import attempts, experiments, run_specs, runs
from worker.records.protocol import Command
from worker.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """The queue's knowledge of a run; the names are the columns'."""

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


COMMANDS = {RunStatus.CANCELLING: Command.CANCEL, RunStatus.PAUSING: Command.PAUSE}
"""The command of a state to the worker; every other live state asks it to continue."""
FIELDS = tuple(field.name for field in fields(RunRow))
COLUMNS = tuple(runs.c[name] for name in FIELDS)


def select_runs() -> sa.Select[Any]:
    """Return the query of `RunRow`s, to be narrowed."""
    return sa.select(*COLUMNS)


_BY_ID = select_runs().where(runs.c.id.in_(sa.bindparam("ids", expanding=True))).order_by(runs.c.id)
"""The order of the ids: two transactions that lock several runs must take them in the same order."""
_LOCK_BY_ID = _BY_ID.with_for_update(of=runs)
_OF_ATTEMPT = (attempts.c.run_id == sa.bindparam("this")) & (attempts.c.attempt == sa.bindparam("this_attempt"))
_TOKEN_HASH = sa.select(attempts.c.token_hash).where(_OF_ATTEMPT)
_ATTEMPT_COLUMNS = ("token_hash", "outcome", "started_at", "device_seconds", "last_batch")
# Both rows are locked, the run's first, so PostgreSQL reads both anew after a wait.
_LOCK_WITH_ATTEMPT = (
    sa.select(*COLUMNS, *(attempts.c[name].label(f"attempt_{name}") for name in _ATTEMPT_COLUMNS))
    .join_from(runs, attempts, attempts.c.run_id == runs.c.id)
    .where(_OF_ATTEMPT)
    .with_for_update(of=(runs, attempts))
)
_EXPERIMENT = sa.select(*(column for column in experiments.c if column.name != "spec"))
_SPECS = sa.select(run_specs).where(run_specs.c.run_id.in_(sa.bindparam("ids", expanding=True)))


def lock(
    database: Database, connection: Connection, query: sa.Select[Any], *, wait: bool = True
) -> tuple[tuple[RunRow, ...], float]:
    """Lock the runs that `query`, made by `select_runs()`, finds, until the transaction ends: they and the database's
    time at that moment. Without `wait` only those that nobody has locked."""
    # PostgreSQL looks at a row of `runs` again after it has waited for it, so what is read here is the newest truth;
    # rows of joined tables may be older and have to be read again.
    rows = connection.execute(query.with_for_update(of=runs, skip_locked=not wait)).all()
    return tuple(RunRow(**row._mapping) for row in rows), database.read_clock(connection)


def lock_ids(database: Database, connection: Connection, ids: Iterable[str]) -> tuple[dict[str, RunRow], float]:
    """Lock the runs of these ids: those that exist and the database's time."""
    rows = connection.execute(_LOCK_BY_ID, {"ids": sorted({validate_id(id) for id in ids})}).all()
    return {row.id: RunRow(**row._mapping) for row in rows}, database.read_clock(connection)


def lock_experiment(connection: Connection, experiment_id: str) -> sa.Row[Any]:
    """Lock an experiment, deleted or not, until the transaction ends, and return the short columns of its row. Raises
    `NotFoundError`."""
    # NO KEY: other transactions refer to the row by foreign keys meanwhile, and must not wait nor deadlock for that.
    locking = _EXPERIMENT.where(experiments.c.id == validate_id(experiment_id)).with_for_update(key_share=True)
    row = connection.execute(locking).one_or_none()
    if row is None:
        raise experiment_not_found(connection, experiment_id, deleted_too=True)
    return row


def trainable_specs(
    connection: Connection, ids: Sequence[RunId]
) -> dict[RunId, RunSpec | ValidationError | DamagedError]:
    """Return the specification of each of these runs, or what is wrong with it: that it would be refused today, or that
    it is not what was written."""
    specs: dict[RunId, RunSpec | ValidationError | DamagedError] = {id: DamagedError("is missing") for id in ids}
    for row in connection.execute(_SPECS, {"ids": list(ids)}) if ids else ():
        try:
            specs[row.run_id] = integrity.valid_run_spec(row.spec, row.checksum)
        except (ValidationError, DamagedError) as error:
            specs[row.run_id] = error
    return specs


def lock_run(database: Database, connection: Connection, run_id: str) -> tuple[RunRow, float] | None:
    """Lock one run: its row and the database's time; None if there is no such run."""
    locked_runs, now = lock_ids(database, connection, [run_id])
    return (locked_runs[run_id], now) if run_id in locked_runs else None


@dataclass(frozen=True, kw_only=True)
class HeldRun:
    """A run whose row is locked, seen by the attempt that claims to hold its lease."""

    run: RunRow
    now: float
    attempt: int
    live: bool
    """Whether this attempt holds the lease."""
    outcome: AttemptOutcome | None
    """The outcome of this attempt, if it has ended."""
    started_at: float | None
    """The time of its hello, if it has said one."""
    device_seconds: float
    """The seconds for which it reported to hold its device."""
    last_batch: int
    """The newest batch of its series; -1 before the first."""


def token_hash(token: str) -> str:
    """Return the stored hash of a lease's secret."""
    return hashlib.sha256(token.encode()).hexdigest()


def lock_held_run(database: Database, connection: Connection, run_id: str, attempt: int, token: str) -> HeldRun | None:
    """Lock the run and return it as that attempt sees it; None if the token does not open the attempt."""
    row = connection.execute(_LOCK_WITH_ATTEMPT, _key(run_id, attempt)).one_or_none()
    if row is None:
        return None
    *of_run, stored_hash, outcome, started_at, device_seconds, last_batch = row
    if not secrets.compare_digest(stored_hash, token_hash(token)):
        return None
    run = RunRow(**dict(zip(FIELDS, of_run, strict=True)))
    return HeldRun(
        run=run,
        now=database.read_clock(connection),
        attempt=attempt,
        live=run.status in LIVE and run.attempt == attempt,
        outcome=outcome,
        started_at=started_at,
        device_seconds=device_seconds,
        last_batch=last_batch,
    )


def check_token(connection: Connection, run_id: str, attempt: int, token: str) -> bool:
    """Return whether the token is that of the attempt, ended or not; nothing is locked."""
    stored_hash = connection.execute(_TOKEN_HASH, _key(run_id, attempt)).scalar_one_or_none()
    return stored_hash is not None and secrets.compare_digest(stored_hash, token_hash(token))


def _key(run_id: str, attempt: int) -> dict[str, object]:
    """Return the binds of `_OF_ATTEMPT`, safe in a query: no larger number fits the column, and none is ever given."""
    return {"this": validate_id(run_id), "this_attempt": min(attempt, 2**31 - 1)}
