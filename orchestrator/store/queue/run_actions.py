"""Actions of users on runs: cancel, pause, resume and retry, for one run or a whole experiment.

An action is a pure function from a locked run to what it should become. Repeating one changes nothing; one that the
state rules out is refused for a run, with the way out, and passed over in an experiment. The answer is read in the
action's own transaction: it says what was done, whatever comes after.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError
from orchestrator.jobs import ACTIONABLE, CLAIMABLE, LIVE, LeasePolicy, RunAction, RunStatus
from orchestrator.records import AnyExperiment, RunRecord
from orchestrator.store import integrity, reads
from orchestrator.store.database import Database
from orchestrator.store.ids import experiment_not_found, validate_id
from orchestrator.store.notifications import count_change
from orchestrator.store.queue import growth
from orchestrator.store.queue.time_limits import renew_time_limits
from orchestrator.store.queue.transitions import move
from orchestrator.store.run_rows import RunRow, lock, lock_run, select_runs, trainable_specs
from orchestrator.store.tables import attempts, experiments, run_specs, runs
from worker.schema import canonical_json, first_fault
from worker.spec.run import RunSpec
from worker.words import pluralize


def apply_to_run(
    database: Database, policy: LeasePolicy, run_id: str, action: RunAction, processes: int | None = None
) -> RunRecord:
    """Return the changed run; with `processes` so many train it from now on. Raises `NotFoundError`, and
    `ConflictError` if its state or its specification rules that out."""
    with database.writing() as connection:
        locked_run = lock_run(database, connection, run_id)
        if locked_run is None:
            raise reads.missing_run_error(connection, run_id)
        run, now = locked_run
        reads.require_experiment(connection, run.experiment_id)
        _require_trainable(connection, [run], action)
        new_run = _outcomes(connection, [run], action, policy, now)[0]
        if new_run is None:
            raise ConflictError(_refusal(run, action))
        if processes is not None:
            new_run = _set_processes(connection, run, new_run, processes)
        move(connection, _changes([run], [new_run]), now)
        return reads.run(connection, run_id)


def apply_to_experiment(
    database: Database, policy: LeasePolicy, experiment_id: str, action: RunAction
) -> AnyExperiment:
    """Apply the action to every run whose state allows it; return what the experiment has become. Raises
    `NotFoundError`, and `ConflictError` if the specification of one that would begin again would be refused today."""
    condition = sa.and_(runs.c.experiment_id == validate_id(experiment_id), runs.c.status.in_(ACTIONABLE[action]))
    with database.reading() as connection:
        steered = connection.execute(select_runs().where(condition)).all()
        _require_trainable(connection, [RunRow(**row._mapping) for row in steered], action)
    if action in growth.GROWTH_AFTER:  # committed first: no run can slip in behind those that are found
        with database.writing() as connection:
            growth.steer_growth(connection, experiment_id, action, database.read_clock(connection))
    with database.writing() as connection:
        number_query = sa.select(experiments.c.number).where(experiments.c.id == validate_id(experiment_id))
        number = connection.execute(number_query).scalar_one_or_none()
        if number is None:
            raise experiment_not_found(connection, experiment_id)
        # By id, as everybody who locks several runs does.
        query = select_runs().where(runs.c.experiment_number == number).order_by(runs.c.id)
        locked_runs, now = lock(database, connection, query.where(runs.c.status.in_(ACTIONABLE[action])))
        reads.require_experiment(connection, experiment_id)
        outcomes = _outcomes(connection, locked_runs, action, policy, now)
        move(connection, _changes(locked_runs, outcomes), now)
        return reads.any_experiment(connection, experiment_id)


def _set_processes(connection: Connection, old_run: RunRow, new_run: RunRow, processes: int) -> RunRow:
    """Let so many processes train the locked run from its next attempt on, each with a GPU where it has GPUs. Its
    checkpoints are the same whatever their number; every batch is shared anew."""
    if new_run.processes == processes:
        return new_run
    if old_run.status not in CLAIMABLE | {RunStatus.PAUSED, RunStatus.FAILED, RunStatus.CANCELLED}:
        raise ConflictError(
            f"run {old_run.id} is {old_run.status} with {old_run.processes} processes; pause it, then resume it with "
            f"{processes}"
        )
    stored_spec = trainable_specs(connection, [old_run.id])[old_run.id]
    if not isinstance(stored_spec, RunSpec):
        raise ConflictError(f"run {old_run.id} cannot be changed: its specification {stored_spec}")
    gpus = processes if stored_spec.resources.gpus else 0
    resources = {**stored_spec.resources.model_dump(), "gpus": gpus, "processes": processes}
    try:
        spec = RunSpec.model_validate({**stored_spec.model_dump(), "resources": resources})
    except ValidationError as error:
        raise ConflictError(
            f"run {old_run.id} cannot be trained by {processes} processes: {first_fault(error)}"
        ) from error
    content = canonical_json(spec.model_dump(mode="json"))
    stored = {"spec": content.decode(), "checksum": integrity.checksum(content)}
    connection.execute(sa.update(run_specs).where(run_specs.c.run_id == old_run.id).values(stored))
    new_resources = spec.resources
    cpus, gpus = new_resources.total_cpus(), new_resources.gpus
    row = sa.update(runs).where(runs.c.id == old_run.id)
    connection.execute(
        row.values(cpus=cpus, gpus=gpus, processes=processes, schedulable=True, version=runs.c.version + 1)
    )
    if old_run.status in CLAIMABLE:
        count_change(connection)  # else `move` does it
    # A limit of time is for each process: what the run has had so far stays what it was.
    spent = (new_run.device_seconds - new_run.max_seconds_from) * processes / old_run.processes
    text = f"goes on with {pluralize(processes, 'process', 'processes')} instead of {old_run.processes}"
    limit_from = new_run.device_seconds - spent
    return replace(new_run, cpus=cpus, gpus=gpus, processes=processes, max_seconds_from=limit_from, reason=text)


def _require_trainable(connection: Connection, run_rows: Iterable[RunRow], action: RunAction) -> None:
    if action not in (RunAction.RESUME, RunAction.RETRY):
        return
    waiting = [run.id for run in run_rows if run.status in (RunStatus.PAUSED, RunStatus.FAILED, RunStatus.CANCELLED)]
    for run_id, spec in trainable_specs(connection, waiting).items():
        if isinstance(spec, ValidationError):
            raise ConflictError(
                f"run {run_id} cannot begin again, its specification would be refused today: {first_fault(spec)}"
            )


def _outcomes(
    connection: Connection, run_rows: Iterable[RunRow], action: RunAction, policy: LeasePolicy, now: float
) -> list[RunRow | None]:
    run_rows, working = list(run_rows), frozenset[str]()
    stopping = [run.id for run in run_rows if run.status is RunStatus.PAUSING]
    if stopping and action is RunAction.RESUME:
        has_worker = attempts.c.ended_at.is_(None) & attempts.c.started_at.is_not(None)
        query = sa.select(attempts.c.run_id).where(attempts.c.run_id.in_(stopping), has_worker)
        working = frozenset(connection.execute(query).scalars())
    return [ACTIONS[action](run, now, policy, run.id in working) for run in run_rows]


def _changes(old_runs: Iterable[RunRow], new_runs: Iterable[RunRow | None]) -> list[tuple[RunRow, RunRow]]:
    pairs = zip(old_runs, new_runs, strict=True)
    return [(old, new) for old, new in pairs if new is not None and new.status is not old.status]


def _refusal(run: RunRow, action: RunAction) -> str:
    if action is RunAction.CANCEL:
        return f"run {run.id} has already {run.status}; there is nothing to cancel"
    return f"run {run.id} is {run.status}; {WAYS_OUT[action]}"


def _cancel(run: RunRow, *_: object) -> RunRow | None:
    if run.status in (RunStatus.CANCELLING, RunStatus.CANCELLED):
        return run
    if run.status in (RunStatus.SUCCEEDED, RunStatus.FAILED):
        return None
    if run.status in LIVE:
        return replace(run, status=RunStatus.CANCELLING, reason="asked to cancel")
    return replace(run, status=RunStatus.CANCELLED, reason="cancelled")


def _pause(run: RunRow, *_: object) -> RunRow | None:
    if run.status in (RunStatus.PAUSING, RunStatus.PAUSED):
        return run
    if run.status in (RunStatus.LEASED, RunStatus.RUNNING):
        return replace(run, status=RunStatus.PAUSING, reason="asked to pause")
    if run.status in CLAIMABLE:
        return replace(run, status=RunStatus.PAUSED, reason="paused")
    return None


def _resume(run: RunRow, now: float, _: LeasePolicy, has_worker: bool) -> RunRow | None:
    if run.status is RunStatus.PAUSED:
        return replace(run, status=RunStatus.QUEUED, reason=None, available_at=now)
    if run.status is RunStatus.PAUSING:
        # Its worker may have stopped already and not be heard yet: `completion.py` queues the run then.
        return replace(run, status=RunStatus.RUNNING if has_worker else RunStatus.LEASED, reason=None)
    return run if run.status in CLAIMABLE | {RunStatus.LEASED, RunStatus.RUNNING} else None


def _retry(run: RunRow, now: float, policy: LeasePolicy, *_: object) -> RunRow | None:
    if run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
        # One more failure ends it again: what failed three times does not get three more for one word.
        failures = min(run.failures, policy.max_failures - 1)
        new_run = replace(run, status=RunStatus.QUEUED, reason=None, available_at=now, failures=failures)
        return renew_time_limits(new_run, now)
    return run if run.status in CLAIMABLE | {RunStatus.LEASED, RunStatus.RUNNING} else None


ACTIONS: dict[RunAction, Callable[[RunRow, float, LeasePolicy, bool], RunRow | None]] = {
    RunAction.CANCEL: _cancel,
    RunAction.PAUSE: _pause,
    RunAction.RESUME: _resume,
    RunAction.RETRY: _retry,
}
"""The next state of a run, by the time, the policy, and whether its live attempt's worker has said hello: itself if it
is there already, None if its state rules the action out."""

WAYS_OUT = {
    RunAction.PAUSE: "only a run that waits or trains can be paused",
    RunAction.RESUME: "only a paused run can be resumed; retry one that failed or was cancelled",
    RunAction.RETRY: (
        "only a run that failed or was cancelled can be retried; resume a paused one, wait for a stopping one"
    ),
}
