"""Submission: an experiment and all of its runs become durable in one transaction, once for each idempotency key.

Those that come together share the transaction, and its forced write.

The order of the queue is fixed here: runs of higher priority first, and among equal ones the runs of several
experiments take turns. An experiment's first run gets the turn that is served now, its next run the next turn, and so
on (start-time fair queuing, Goyal et al. 1996, with one start as the unit). So an experiment of four runs gets every
second free slot beside one of ten thousand, and a newcomer overtakes nobody for longer than its turn.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, DamagedError, IdempotencyError, OrchestratorError, StoreError
from orchestrator.jobs import ExperimentId, RunStatus
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import ExperimentRecord, Progress, StateCounts
from orchestrator.store import integrity
from orchestrator.store.database import Database
from orchestrator.store.ids import new_id
from orchestrator.store.integrity import checksum
from orchestrator.store.notifications import count_change, tell
from orchestrator.store.tables import (
    QUEUE_ORDER,
    events,
    experiments,
    is_claimable,
    keys,
    run_specs,
    runs,
)
from worker.schema import canonical_json, trust_stored_names

QUEUED = {"status": RunStatus.QUEUED, "reason": None}
PAUSED = {"status": RunStatus.PAUSED, "reason": "the experiment is paused"}
LARGE_RUNS = 100
"""An experiment of more runs is submitted by itself: nobody else's waits for it to be written."""


class RunLimits(TypedDict):
    """The columns that limit a run."""

    max_seconds: float | None
    deadline_at: float | None


def run_limits(spec: ExperimentSpec, submitted_at: float) -> RunLimits:
    """What limits the runs of an experiment that was submitted then, those that it gets later too."""
    deadline_at = None if spec.deadline_seconds is None else submitted_at + spec.deadline_seconds
    return RunLimits(max_seconds=spec.max_run_seconds, deadline_at=deadline_at)


@dataclass(frozen=True, kw_only=True)
class Submittal:
    """One call: what is to be stored, made ready before any lock is taken."""

    spec: ExperimentSpec
    key: str | None
    spec_json: str
    spec_hash: str
    planned: tuple[PlannedRun, ...]
    by: str | None
    """The caller's key, which the runs are charged to."""
    trace_parent: str | None
    cloned_from: str | None

    @classmethod
    def from_spec(
        cls,
        spec: ExperimentSpec,
        key: str | None,
        *,
        by: str | None = None,
        trace_parent: str | None = None,
        cloned_from: str | None = None,
    ) -> Self:
        """Expand the experiment."""
        content = canonical_json(spec.model_dump(mode="json"))
        spec_hash = hashlib.sha256(content).hexdigest()  # as `Spec.content_hash` has it
        return cls(
            spec=spec,
            key=key,
            spec_json=content.decode(),
            spec_hash=spec_hash,
            planned=spec.first_runs(),
            by=by,
            trace_parent=trace_parent,
            cloned_from=cloned_from,
        )


Submitted = tuple[ExperimentId, ExperimentRecord | None]
"""The experiment's id, and its record where it is new."""


def submit_together(
    database: Database, submittals: Sequence[Submittal], most_waiting: int | None = None
) -> list[Submitted | Exception]:
    """Store the experiments and their runs in one transaction; returns the id of each, or what refuses it. A fault that
    nobody foresaw refuses the guilty one alone.

    The same `key` with the same specification is answered with the experiment that it made the first time; with
    another one `IdempotencyError` is the answer. One that would leave its caller's key with more than `most_waiting`
    runs that wait to be begun is answered with `ConflictError`. When this returns, nothing short of a lost disk loses
    an experiment.
    """
    try:
        return list(_store_together(database, submittals, most_waiting)) if submittals else []
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - its answer
        if len(submittals) == 1:
            return [error]
        return [answer for each in submittals for answer in submit_together(database, [each], most_waiting)]


def _store_together(
    database: Database, submittals: Sequence[Submittal], most_waiting: int | None
) -> list[Submitted | OrchestratorError]:
    with database.writing() as connection:
        answers = store_experiments(connection, submittals, database.read_clock(connection), most_waiting)
        if any(new for each in answers if isinstance(each, tuple) for new in each[1:]):
            count_change(connection)
        return answers


def store_experiments(
    connection: Connection, submittals: Sequence[Submittal], now: float, most_waiting: int | None = None
) -> list[Submitted | OrchestratorError]:
    """Store the experiments and their runs as part of a transaction, whose last statement is to be `count_change`."""
    answers: dict[int, Submitted | OrchestratorError] = {}
    new: list[ExperimentId] = []
    rows: list[QueuedRow] = []
    turns: dict[int, int] = {}
    key_ids, runs_planned = {each.by for each in submittals if each.by}, sum(len(s.planned) for s in submittals)
    room = _room_of_keys(connection, key_ids, runs_planned, most_waiting)
    # In the order of the keys: two processes that lock several must take them in the same order.
    ordered = sorted(enumerate(submittals), key=lambda pair: pair[1].key or "")
    ids = [ExperimentId(new_id()) for _ in ordered]
    numbers = _insert_experiments(connection, ids, [each for _, each in ordered], now)
    for (position, each), experiment_id in zip(ordered, ids, strict=True):
        number = numbers.get(experiment_id)
        if number is None:
            answers[position] = _find_submitted(connection, each)
            continue
        if each.by in room and len(each.planned) > room[each.by]:
            connection.execute(sa.delete(experiments).where(experiments.c.number == number))
            answers[position] = ConflictError(
                f"this key may have {most_waiting:,} runs that wait to be begun, and has room for "
                f"{room[each.by]:,} more; this experiment has {len(each.planned):,}: wait until some have begun, "
                "or cancel some"
            )
            continue
        if each.by in room:
            room[each.by] -= len(each.planned)
        rank = -each.spec.priority
        if rank not in turns:  # the same for all of them: what joins a turn does not end it
            turns[rank] = _current_turn(connection, rank)
        more = {**QUEUED, **run_limits(each.spec, now), "trace_parent": each.trace_parent}
        rows += _queued_rows(experiment_id, number, each.planned, now, rank=rank, turn=turns[rank], more=more)
        answers[position] = experiment_id, _new_record(experiment_id, each, now)
        new.append(experiment_id)
    if rows:
        _insert_rows(connection, rows, now)
    if new:
        tell(connection, new, now)
    return [answers[position] for position in range(len(submittals))]


def _new_record(experiment_id: ExperimentId, submittal: Submittal, now: float) -> ExperimentRecord:
    """What `reads.experiment` says of an experiment that has just been stored."""
    spec, runs_total = submittal.spec, len(submittal.planned)
    steps_total = sum(run.spec.workload.budget.steps for run in submittal.planned)
    if spec.grows():
        steps_total = max(steps_total, spec.step_count())
    queued = {RunStatus.QUEUED: runs_total} if runs_total else {}
    with trust_stored_names():  # its specification was looked through when it was read
        return ExperimentRecord(
            id=experiment_id,
            name=spec.name,
            kind=spec.kind,
            spec=spec,
            spec_hash=submittal.spec_hash,
            created_at=now,
            ended_at=None,
            counts=StateCounts(total=runs_total, by_status=queued, growing=spec.grows()),
            progress=Progress(steps_done=0, steps_total=steps_total, tokens_per_second=None, seconds_left=None),
            key_id=submittal.by,
            cloned_from=submittal.cloned_from,
        )


def _insert_experiments(
    connection: Connection, ids: Sequence[ExperimentId], submittals: Sequence[Submittal], now: float
) -> dict[str, int]:
    """The number of each experiment that is new. Those whose key is taken have none (on PostgreSQL: once the other
    submitter has committed); of two with the same key the first one is new."""
    rows = [
        {
            "id": experiment_id,
            "name": each.spec.name,
            "kind": each.spec.kind,
            "spec": each.spec_json,
            "spec_hash": each.spec_hash,
            "idempotency_key": each.key,
            "created_at": now,
            "growing": each.spec.grows(),
            "key_id": each.by,
            "cloned_from": each.cloned_from,
            "trace_parent": each.trace_parent,
        }
        for experiment_id, each in zip(ids, submittals, strict=True)
    ]
    return {row.id: row.number for row in connection.execute(_INSERT_EXPERIMENTS[connection.dialect.name], rows)}


def _room_of_keys(
    connection: Connection, key_ids: Collection[str], planned: int, most_waiting: int | None
) -> dict[str | None, int]:
    """How many more runs of each key may wait, where so many that are `planned` might be too many; locks the keys, so
    that two submissions cannot pass together."""
    if most_waiting is None or not key_ids:
        return {}
    connection.execute(_LOCK_KEYS, {"ids": sorted(key_ids)})
    # Whose they are is looked at where all that wait could be too many for one: it takes twenty times as long.
    of_all = connection.execute(_SOME_WAITING, {"most": most_waiting}).scalar_one()
    if of_all < most_waiting and of_all + planned <= most_waiting:
        return {}
    waiting = {row.key_id: int(row.runs) for row in connection.execute(_WAITING, {"ids": sorted(key_ids)})}
    return {key_id: max(most_waiting - waiting.get(key_id, 0), 0) for key_id in key_ids}


def _is_read_as(stored: object, spec_hash: str) -> bool:
    """Whether an earlier version stored the same specification."""
    try:
        return integrity.hash_as_read(stored) == spec_hash
    except DamagedError:
        return False


def _find_submitted(connection: Connection, submittal: Submittal) -> Submitted | IdempotencyError:
    known = connection.execute(_BY_KEY, {"key": submittal.key}).one()
    if known.spec_hash != submittal.spec_hash and not _is_read_as(known.spec, submittal.spec_hash):
        return IdempotencyError(
            f"the idempotency key {submittal.key!r} belongs to experiment {known.id} with another specification; "
            "use a new key for a new experiment"
        )
    if known.deleted_at is not None:
        return IdempotencyError(
            f"the idempotency key {submittal.key!r} belongs to experiment {known.id}, which was deleted; restore it "
            f"(`adapm-bench delete {known.id} --undo`), or use a new key"
        )
    return ExperimentId(known.id), None


def _current_turn(connection: Connection, rank: int) -> int:
    """The turn that is served now among runs of this rank: that of the first one waiting for its first attempt.

    Where none waits, the turn after the last: retries of earlier runs must not wait behind a whole new experiment.
    """
    served = connection.execute(_SERVED, {"rank": rank}).scalar_one_or_none()
    if served is None:
        last = connection.execute(_LAST_TURN, {"rank": rank}).scalar_one()
        served = 0 if last is None else last + 1
    return int(served)


def insert_runs(
    connection: Connection,
    experiment: sa.Row[Any],
    spec: ExperimentSpec,
    planned: Sequence[PlannedRun],
    now: float,
    *,
    first: int,
    limits: RunLimits,
) -> None:
    """Queue more runs of an experiment, whose row is locked, at the positions from `first` on, in turn with the others
    of their rank; or let them wait for its resume. Their trace is that of its submission."""
    rank = -spec.priority
    turn = _current_turn(connection, rank)
    more = {**(PAUSED if experiment.paused else QUEUED), **limits, "trace_parent": experiment.trace_parent}
    id, number = ExperimentId(experiment.id), experiment.number
    rows = _queued_rows(id, number, planned, now, rank=rank, turn=turn, first=first, more=more)
    _insert_rows(connection, rows, now)


QueuedRow = tuple[PlannedRun, dict[str, object]]
"""A run and its row."""


def _queued_rows(
    experiment_id: ExperimentId,
    number: int,
    planned: Sequence[PlannedRun],
    now: float,
    *,
    rank: int,
    turn: int,
    first: int = 0,
    more: Mapping[str, object],
) -> list[QueuedRow]:
    return [
        (
            run,
            {**_run_row(run, experiment_id, number, first + offset, now), **more, "rank": rank, "turn": turn + offset},
        )
        for offset, run in enumerate(planned)
    ]


def _insert_rows(connection: Connection, rows: Sequence[QueuedRow], now: float) -> None:
    connection.execute(_INSERT_RUNS, [row for _, row in rows])
    contents = [canonical_json(run.spec.model_dump(mode="json")) for run, _ in rows]
    specs = [
        {"run_id": row["id"], "spec": content.decode(), "checksum": checksum(content)}
        for content, (_, row) in zip(contents, rows, strict=True)
    ]
    connection.execute(_INSERT_SPECS, specs)
    begun: dict[str, object] = {"sequence": 1, "at": now, "from_status": None, "attempt": 0}
    moves = [{"run_id": row["id"], "to_status": row["status"], "reason": row["reason"]} | begun for _, row in rows]
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

_INSERT_EXPERIMENTS = {
    name: dialect.insert(experiments)
    .on_conflict_do_nothing(index_elements=["idempotency_key"])
    .returning(experiments.c.id, experiments.c.number)
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
}
_BY_KEY = sa.select(experiments.c.spec, *(experiments.c[name] for name in ("id", "spec_hash", "deleted_at"))).where(
    experiments.c.idempotency_key == sa.bindparam("key")
)
_SERVED = (
    sa.select(runs.c.turn)
    .where(is_claimable & (runs.c.rank == sa.bindparam("rank")) & (runs.c.attempt == 0) & runs.c.schedulable)
    .order_by(*QUEUE_ORDER)
    .limit(1)
)
_LOCK_KEYS = (
    sa.select(keys.c.id)
    .where(keys.c.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(keys.c.id)
    .with_for_update(key_share=True)
)
_SOME_WAITING = sa.select(sa.func.count()).select_from(
    sa.select(runs.c.position).where(is_claimable).limit(sa.bindparam("most")).subquery()
)
# By the index of the runs that wait, which is as long as the queue; the runs of a key are as many as ever were.
_QUEUED = (
    sa.select(runs.c.experiment_number, sa.func.count().label("runs"))
    .where(is_claimable)
    .group_by(runs.c.experiment_number)
    .subquery()
)
_WAITING = (
    sa.select(experiments.c.key_id, sa.func.sum(_QUEUED.c.runs).label("runs"))
    .select_from(_QUEUED.join(experiments, experiments.c.number == _QUEUED.c.experiment_number))
    .where(experiments.c.key_id.in_(sa.bindparam("ids", expanding=True)))
    .group_by(experiments.c.key_id)
)
_LAST_TURN = sa.select(sa.func.max(runs.c.turn)).where(runs.c.rank == sa.bindparam("rank"))
_INSERT_RUNS, _INSERT_SPECS, _INSERT_EVENTS = sa.insert(runs), sa.insert(run_specs), sa.insert(events)
