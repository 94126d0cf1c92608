"""`submit`: an experiment and all of its runs become durable in one transaction, once for each idempotency key.

The order of the queue is fixed here: runs of higher priority first, and among equal ones the runs of several
experiments take turns. An experiment's first run gets the turn that is served now, its next run the next turn, and so
on (start-time fair queuing, Goyal et al. 1996, with one start as the unit). So an experiment of four runs gets every
second free slot beside one of ten thousand, and a newcomer overtakes nobody for longer than its turn.
"""

import secrets

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from orchestrator.errors import IdempotencyError
from orchestrator.experiments import ComparisonSpec, PlannedRun
from orchestrator.jobs import ExperimentId, RunStatus
from orchestrator.kinds import planned_runs, will_grow
from orchestrator.store.database import Database
from orchestrator.store.moves import count_change
from orchestrator.store.tables import (
    QUEUE_ORDER,
    OutboxKind,
    events,
    experiments,
    is_claimable,
    outbox,
    run_specs,
    runs,
)
from orchestrator.sweeps import SweepSpec
from worker.spec import canonical_json

ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: no letter that looks like a digit."""
QUEUED = {"status": RunStatus.QUEUED, "reason": None}
PAUSED = {"status": RunStatus.PAUSED, "reason": "the experiment is paused"}
ID_LENGTH = 10
"""50 random bits: a million experiments meet by chance with a probability below 0.05 %, and the key refuses them."""


def submit(database: Database, spec: ComparisonSpec | SweepSpec, key: str | None) -> tuple[ExperimentId, bool]:
    """Store the experiment and its runs; returns its id and whether it is new.

    The same `key` with the same specification is answered with the experiment that it made the first time; with
    another one it raises `IdempotencyError`. When this returns, nothing short of a lost disk loses the experiment.
    """
    planned = planned_runs(spec)
    with database.writing() as connection:
        now = database.read_clock(connection)
        experiment_id = ExperimentId("".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH)))
        number = _insert_experiment(connection, experiment_id, spec, key, now)
        if number is None:
            assert key is not None  # without a key nothing can collide
            return _earlier(connection, spec, key), False
        if planned:
            insert_runs(connection, experiment_id, number, planned, now, rank=-spec.priority)
        _tell(connection, experiment_id, now)
        count_change(connection)
        return experiment_id, True


def _insert_experiment(
    connection: Connection, experiment_id: ExperimentId, spec: ComparisonSpec | SweepSpec, key: str | None, now: float
) -> int | None:
    """The experiment's number; None where its key is taken (on PostgreSQL: after the other submitter has committed)."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    query = (
        dialect.insert(experiments)
        .values(
            id=experiment_id,
            name=spec.name,
            kind=spec.kind,
            spec=canonical_json(spec.model_dump(mode="json")).decode(),
            spec_hash=spec.content_hash(),
            idempotency_key=key,
            created_at=now,
            growing=will_grow(spec),
        )
        .on_conflict_do_nothing(index_elements=["idempotency_key"])
        .returning(experiments.c.number)
    )
    return connection.execute(query).scalar_one_or_none()


def _earlier(connection: Connection, spec: ComparisonSpec | SweepSpec, key: str) -> ExperimentId:
    query = sa.select(experiments.c.id, experiments.c.spec_hash).where(experiments.c.idempotency_key == key)
    known = connection.execute(query).one()
    if known.spec_hash != spec.content_hash():
        raise IdempotencyError(
            f"the idempotency key {key!r} belongs to experiment {known.id} with another specification; "
            "use a new key for a new experiment"
        )
    return ExperimentId(known.id)


def _turn(connection: Connection, rank: int) -> int:
    """The turn that is served now among runs of this rank: that of the first one waiting for its first attempt.

    Where none waits, the turn after the last: retries of earlier runs must not wait behind a whole new experiment.
    """
    fresh = is_claimable & (runs.c.rank == rank) & (runs.c.attempt == 0) & runs.c.schedulable
    query = sa.select(runs.c.turn).where(fresh).order_by(*QUEUE_ORDER).limit(1)
    served = connection.execute(query).scalar_one_or_none()
    if served is None:
        last = connection.execute(sa.select(sa.func.max(runs.c.turn)).where(runs.c.rank == rank)).scalar_one()
        served = 0 if last is None else last + 1
    return int(served)


def insert_runs(
    connection: Connection,
    experiment_id: ExperimentId,
    number: int,
    planned: tuple[PlannedRun, ...],
    now: float,
    *,
    rank: int,
    first: int = 0,
    paused: bool = False,
) -> None:
    """Queue the runs of an experiment, at the positions from `first` on, in turn with the others of their rank; or
    let them wait for the experiment's resume."""
    ids = [f"{experiment_id}-{first + offset:04d}" for offset in range(len(planned))]
    turn = _turn(connection, rank)
    state = PAUSED if paused else QUEUED
    rows = [
        _run_row(run, experiment_id, number, first + offset, now) | state | {"rank": rank, "turn": turn + offset}
        for offset, run in enumerate(planned)
    ]
    connection.execute(sa.insert(runs), [{"id": id, **row} for id, row in zip(ids, rows, strict=True)])
    specs = [canonical_json(run.spec.model_dump(mode="json")).decode() for run in planned]
    connection.execute(
        sa.insert(run_specs), [{"run_id": id, "spec": spec} for id, spec in zip(ids, specs, strict=True)]
    )
    begun: dict[str, object] = {"sequence": 1, "at": now, "from_status": None, "attempt": 0}
    begun |= {"to_status": state["status"], "reason": state["reason"]}
    connection.execute(sa.insert(events), [{"run_id": id, **begun} for id in ids])


def _tell(connection: Connection, experiment_id: ExperimentId, now: float) -> None:
    """Leave word of the new experiment in the outbox."""
    entry = {"kind": OutboxKind.EXPERIMENT_SUBMITTED, "experiment_id": experiment_id}
    connection.execute(sa.insert(outbox), [{**entry, "created_at": now, "available_at": now}])


def _run_row(run: PlannedRun, experiment_id: ExperimentId, number: int, position: int, now: float) -> dict[str, object]:
    spec = run.spec
    return {
        "experiment_id": experiment_id,
        "experiment_number": number,
        "position": position,
        "candidate": run.candidate,
        "optimizer": spec.optimizer.name,
        "lr": spec.optimizer.lr,
        "seed": spec.seed,
        "model": spec.workload.model,
        "cpus": spec.resources.cpus,
        "gpus": spec.resources.gpus,
        "steps_total": spec.workload.budget.steps,
        "created_at": now,
        "available_at": now,
        "last_event": 1,
    }
