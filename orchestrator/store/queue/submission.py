"""Submission: an experiment and all of its runs become durable in one transaction, once for each idempotency key.

The order of the queue is fixed here: runs of higher priority first, and among equal ones the runs of several
experiments take turns. An experiment's first run gets the turn that is served now, its next run the next turn, and so
on (start-time fair queuing, Goyal et al. 1996, with one start as the unit). So an experiment of four runs gets every
second free slot beside one of ten thousand, and a newcomer overtakes nobody for longer than its turn.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, DamagedError, IdempotencyError
from orchestrator.jobs import ExperimentId, RunStatus
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import ExperimentRecord, SubmissionReceipt
from orchestrator.store import integrity, reads
from orchestrator.store.database import Database, insert
from orchestrator.store.ids import new_id
from orchestrator.store.integrity import checksum
from orchestrator.store.notifications import count_change, notify_submitted
from orchestrator.store.tables import (
    QUEUE_ORDER,
    events,
    experiments,
    is_claimable,
    keys,
    run_specs,
    runs,
)
from worker.schema import canonical_json

QUEUED = {"status": RunStatus.QUEUED, "reason": None}
PAUSED = {"status": RunStatus.PAUSED, "reason": "the experiment is paused"}


RunLimits = Mapping[str, float | None]
"""The columns that limit a run: `max_seconds` and `deadline_at`."""


def run_limits(spec: ExperimentSpec, submitted_at: float) -> RunLimits:
    """Return the limits of all runs of an experiment that was submitted then, future ones too."""
    deadline_at = None if spec.deadline_seconds is None else submitted_at + spec.deadline_seconds
    return {"max_seconds": spec.max_run_seconds, "deadline_at": deadline_at}


def submit(
    database: Database,
    spec: ExperimentSpec,
    *,
    key: str | None = None,
    by: str | None = None,
    cloned_from: str | None = None,
    most_waiting: int | None = None,
) -> SubmissionReceipt:
    """Store an experiment and its runs in one transaction; when this returns, only a lost disk loses them. Its runs are
    charged to the quota of the key `by`.

    The same idempotency `key` with the same specification returns the experiment of the first time; with another one
    it raises `IdempotencyError`. Raises `ConflictError` if the caller's key would have more than `most_waiting` runs
    that wait to be begun.
    """
    experiment_id = ExperimentId(new_id())
    planned = spec.first_runs()  # before any lock is taken
    content = canonical_json(spec.model_dump(mode="json"))
    spec_hash = hashlib.sha256(content).hexdigest()  # as `Spec.content_hash` has it
    with database.writing() as connection:
        now = database.read_clock(connection)
        room = math.inf
        if most_waiting is not None and by is not None:  # locked, so that two submissions cannot pass together
            connection.execute(_LOCK_KEY, {"key_id": by})
            room = max(most_waiting - int(connection.execute(_WAITING, {"key_id": by}).scalar_one()), 0)
        row = {
            "id": experiment_id,
            "name": spec.name,
            "kind": spec.kind,
            "spec": content.decode(),
            "spec_hash": spec_hash,
            "idempotency_key": key,
            "created_at": now,
            "growing": spec.grows(),
            "key_id": by,
            "cloned_from": cloned_from,
        }
        # On PostgreSQL this waits for another submitter of the same key to commit.
        statement = (
            insert(connection, experiments).values(row).on_conflict_do_nothing(index_elements=["idempotency_key"])
        )
        number = connection.execute(statement.returning(experiments.c.number)).scalar_one_or_none()
        if number is None:
            return SubmissionReceipt(experiment=_find_submitted(connection, key, spec_hash), created=False)
        if len(planned) > room:
            raise ConflictError(
                f"this key may have {most_waiting:,} waiting runs, and has room for {room:,} more; this "
                f"experiment has {len(planned):,}: wait until some have started, or cancel some"
            )
        if planned:
            insert_runs(connection, experiment_id, number, spec, planned, now, limits=run_limits(spec, now))
        notify_submitted(connection, experiment_id, now)
        receipt = SubmissionReceipt(experiment=reads.experiment(connection, experiment_id), created=True)
        count_change(connection)
        return receipt


def _find_submitted(connection: Connection, key: str | None, spec_hash: str) -> ExperimentRecord:
    """Return the experiment submitted earlier under that key. Raises `IdempotencyError` if it differs."""
    earlier = connection.execute(_BY_KEY, {"key": key}).one()
    is_same = earlier.spec_hash == spec_hash
    with suppress(DamagedError):  # an earlier version wrote the same one otherwise
        is_same = is_same or integrity.hash_as_read(earlier.spec) == spec_hash
    if not is_same:
        raise IdempotencyError(
            f"the idempotency key {key!r} belongs to experiment {earlier.id} with another specification; "
            "use a new key for a new experiment"
        )
    if earlier.deleted_at is not None:
        raise IdempotencyError(
            f"the idempotency key {key!r} belongs to experiment {earlier.id}, which was deleted; restore it "
            f"(`adapm-bench delete {earlier.id} --undo`), or use a new key"
        )
    return reads.experiment(connection, earlier.id)


def _current_turn(connection: Connection, rank: int) -> int:
    """Return the turn now served among runs of this rank: that of the first run waiting for its first attempt.

    Where none waits, the turn after the last: retries of earlier runs must not wait behind a whole new experiment.
    """
    served = connection.execute(_SERVED, {"rank": rank}).scalar_one_or_none()
    if served is None:
        last = connection.execute(_LAST_TURN, {"rank": rank}).scalar_one()
        served = 0 if last is None else last + 1
    return int(served)


def insert_runs(
    connection: Connection,
    experiment_id: ExperimentId,
    number: int,
    spec: ExperimentSpec,
    planned: Sequence[PlannedRun],
    now: float,
    *,
    limits: RunLimits,
    first: int = 0,
    paused: bool = False,
) -> None:
    """Queue runs of an experiment, whose row is locked, at the positions from `first` on, with their specifications and
    first events, in turn with the others of their rank; or let them wait for its resume."""
    rank, columns = -spec.priority, {**(PAUSED if paused else QUEUED), **limits}
    turn = _current_turn(connection, rank)
    rows = [
        {**_run_row(run, experiment_id, number, first + offset, now), **columns, "rank": rank, "turn": turn + offset}
        for offset, run in enumerate(planned)
    ]
    connection.execute(_INSERT_RUNS, rows)
    contents = [canonical_json(run.spec.model_dump(mode="json")) for run in planned]
    specs = [
        {"run_id": row["id"], "spec": content.decode(), "checksum": checksum(content)}
        for content, row in zip(contents, rows, strict=True)
    ]
    connection.execute(_INSERT_SPECS, specs)
    begun: dict[str, object] = {"sequence": 1, "at": now, "from_status": None, "attempt": 0}
    moves = [{"run_id": row["id"], "to_status": row["status"], "reason": row["reason"]} | begun for row in rows]
    connection.execute(_INSERT_EVENTS, moves)


def _run_row(run: PlannedRun, experiment_id: ExperimentId, number: int, position: int, now: float) -> dict[str, object]:
    spec = run.spec
    return {
        "id": f"{experiment_id}-{position:04d}",
        "experiment_id": experiment_id,
        "experiment_number": number,
        "position": position,
        "candidate": run.candidate,
        "optimizer": spec.optimizer.name,
        "lr": spec.optimizer.lr,
        "seed": spec.seed,
        "model": spec.workload.model,
        "cpus": spec.resources.total_cpus(),
        "gpus": spec.resources.gpus,
        "processes": spec.resources.process_count(),
        "steps_total": spec.workload.budget.steps,
        "created_at": now,
        "available_at": now,
        "last_event": 1,
    }


# The statements, built once: building one costs more than SQLite takes to carry it out.

_BY_KEY = sa.select(experiments.c.spec, *(experiments.c[name] for name in ("id", "spec_hash", "deleted_at"))).where(
    experiments.c.idempotency_key == sa.bindparam("key")
)
_SERVED = (
    sa.select(runs.c.turn)
    .where(is_claimable & (runs.c.rank == sa.bindparam("rank")) & (runs.c.attempt == 0) & runs.c.schedulable)
    .order_by(*QUEUE_ORDER)
    .limit(1)
)
_LOCK_KEY = sa.select(keys.c.id).where(keys.c.id == sa.bindparam("key_id")).with_for_update(key_share=True)
# By the index of the runs that wait, which is as long as the queue; the runs of a key are as many as ever were.
_QUEUED = (
    sa.select(runs.c.experiment_number, sa.func.count().label("runs"))
    .where(is_claimable)
    .group_by(runs.c.experiment_number)
    .subquery()
)
_WAITING = (
    sa.select(sa.func.coalesce(sa.func.sum(_QUEUED.c.runs), 0))
    .select_from(_QUEUED.join(experiments, experiments.c.number == _QUEUED.c.experiment_number))
    .where(experiments.c.key_id == sa.bindparam("key_id"))
)
_LAST_TURN = sa.select(sa.func.max(runs.c.turn)).where(runs.c.rank == sa.bindparam("rank"))
_INSERT_RUNS, _INSERT_SPECS, _INSERT_EVENTS = sa.insert(runs), sa.insert(run_specs), sa.insert(events)
