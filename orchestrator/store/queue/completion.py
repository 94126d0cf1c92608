"""Ends of attempts by their worker's own word: finish, stopped, fail.

    lock the run  →  check the token, decide (pure)  →  result, attempt, series, move

A word that was accepted once is accepted again; one that comes too late, or contradicts the state, is refused alone.
"""

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, DamagedError, LeaseLostError
from orchestrator.jobs import AttemptOutcome, LeasePolicy, RunStatus
from orchestrator.store import integrity, series
from orchestrator.store.database import Database
from orchestrator.store.queue.transitions import AttemptEnd, end_attempts, move, status_after_loss
from orchestrator.store.run_rows import COMMANDS, HeldRun, RunRow, lock_held_run
from orchestrator.store.tables import checkpoints, events, results, run_specs
from worker.records.protocol import Command, Failure, FailureKind, LastWord, Stopped
from worker.records.result import Result, Verdict
from worker.spec.run import RunSpec
from worker.words import pluralize

ROOM_SECONDS = 30.0
"""Pause of a run whose machine's disk was full: nobody is to blame, and somebody has to make room first."""


def record_ending(
    database: Database, policy: LeasePolicy, run_id: str, attempt: int, token: str, word: LastWord
) -> None:
    """End an attempt by its worker's word. Raises `LeaseLostError`, and `ConflictError` if the word contradicts the
    run's state."""
    outcome = _outcome(word)
    with database.writing() as connection:
        held = lock_held_run(database, connection, run_id, attempt, token)
        if held is None or not (held.live or held.outcome is outcome):
            raise LeaseLostError
        if not held.live:
            return  # it was accepted before
        match word:
            case Result():
                new_run, message = _after_result(held, word), word.verdict_reason
                connection.execute(_INSERT_RESULT, _result_row(held, word))
                connection.execute(_DROP_CHECKPOINTS, {"this": held.run.id})  # nobody will resume them
            case Stopped():
                new_run = _after_stop(connection, held, word, policy)
                message = f"{word.command} at step {word.step}"
            case Failure():
                new_run, message = _after_failure(connection, held, word, outcome, policy), word.message
        if held.run.limit_reached:
            message = f"{message}; {held.run.reason}"
        end = AttemptEnd(run=held.run, outcome=outcome, message=message, device_seconds=word.device_seconds)
        (charged,) = end_attempts(connection, [end], held.now)
        if held.last_batch > 0:
            series.merge_small_chunks(connection, run_id, attempt)
        move(connection, [(held.run, replace(new_run, device_seconds=charged.device_seconds))], held.now)


def _outcome(word: LastWord) -> AttemptOutcome:
    match word:
        case Result():
            return AttemptOutcome.SUCCEEDED
        case Stopped():
            return AttemptOutcome.STOPPED
        case Failure(kind=FailureKind.INTERRUPTED):
            return AttemptOutcome.INTERRUPTED
        case Failure():
            return AttemptOutcome.BROKEN


def _after_result(held: HeldRun, result: Result) -> RunRow:
    """Return the run as SUCCEEDED with its one result, also while a cancel or pause is under way: what is done is
    done."""
    if held.run.status is RunStatus.LEASED:
        raise ConflictError(f"attempt {held.attempt} of run {held.run.id} has not said hello and cannot have a result")
    return replace(
        held.run,
        status=RunStatus.SUCCEEDED,
        reason=None,
        limit_reached=None,
        step=min(result.steps, held.run.steps_total),
        last_train_loss=result.final_train_loss,
        # A trial that was stopped early has no final loss; the newest one that it told stays true.
        last_val_loss=held.run.last_val_loss if result.verdict is Verdict.STOPPED_EARLY else result.final_val_loss,
        tokens_per_second=result.tokens_per_second,
    )


def _after_stop(connection: Connection, held: HeldRun, word: Stopped, policy: LeasePolicy) -> RunRow:
    """Return the run whose worker obeyed: CANCELLING → CANCELLED, PAUSING → PAUSED; RUNNING → QUEUED if the pause was
    taken back."""
    reached = replace(held.run, step=min(word.step, held.run.steps_total))
    if reached.status in COMMANDS:
        return status_after_loss(reached, AttemptOutcome.STOPPED, word.command, policy, held.now)
    attempts_pauses = sa.select(events.c.sequence).where(
        events.c.run_id == held.run.id, events.c.attempt == held.attempt, events.c.to_status == RunStatus.PAUSING
    )
    if word.command is Command.PAUSE and connection.execute(attempts_pauses).first() is not None:
        reason = "paused and resumed; the run goes on from its checkpoint"
        return replace(reached, status=RunStatus.QUEUED, reason=reason, available_at=held.now)
    raise ConflictError(f"run {held.run.id} is {reached.status}; nobody asked its worker to stop")


def _after_failure(
    connection: Connection, held: HeldRun, failure: Failure, outcome: AttemptOutcome, policy: LeasePolicy
) -> RunRow:
    """Return the run whose attempt broke down: tried again after a while, or FAILED where that would not help."""
    if failure.kind is FailureKind.OUT_OF_MEMORY:
        retried_run = retry_with_half_micro_batch(connection, held.run, held.now)
        if retried_run is not None:
            return retried_run
    if failure.kind is FailureKind.STORAGE_FULL:
        waiting = status_after_loss(held.run, AttemptOutcome.INTERRUPTED, failure.message, policy, held.now)
        return replace(waiting, available_at=held.now + ROOM_SECONDS)
    if failure.kind is FailureKind.PROGRAM and held.run.status is not RunStatus.CANCELLING:
        failures = held.run.failures + 1
        return replace(held.run, status=RunStatus.FAILED, reason=failure.message, failures=failures)
    return status_after_loss(held.run, outcome, failure.message, policy, held.now)


def retry_with_half_micro_batch(connection: Connection, run: RunRow, now: float) -> RunRow | None:
    """Return a live, locked run to be retried after its attempt ran out of memory; None if that is impossible.

    Its next attempt takes half the micro-batch and twice the accumulation: what is trained stays the same, and so the
    run does. Each try is an attempt of its own, and no failure of the run. It ends at micro-batches of one sequence:
    then the worker's verdict is the result.
    """
    if run.status not in (RunStatus.LEASED, RunStatus.RUNNING):
        return None  # it was asked to stop
    row = connection.execute(sa.select(run_specs).where(run_specs.c.run_id == run.id)).one()
    try:
        spec = integrity.run_spec(row.spec, row.checksum)
    except DamagedError:
        return None  # the next claim tells it
    half = halve_micro_batch(spec, run.micro_batch_sequences)
    if half is None:
        return None
    reason = f"out of memory; the next attempt takes micro-batches of {pluralize(half, 'sequence')}"
    return replace(run, status=RunStatus.RETRY_WAIT, reason=reason, micro_batch_sequences=half, available_at=now)


def halve_micro_batch(spec: RunSpec, cut_down_to: int | None) -> int | None:
    """Return half the micro-batch of the last attempt, rounded up; None if it is not to be cut, or is one sequence."""
    execution = spec.workload.execution
    if not execution.retry_out_of_memory or execution.micro_batch_sequences == "auto":
        return None
    share = spec.workload.budget.batch_sequences // spec.resources.process_count()
    micro_batch = cut_down_to or execution.micro_batch_sequences or share
    return (micro_batch + 1) // 2 if micro_batch > 1 else None


def _result_row(held: HeldRun, result: Result) -> dict[str, object]:
    content = result.model_dump_json()
    return {
        "run_id": held.run.id,
        "attempt": held.attempt,
        "recorded_at": held.now,
        "verdict": result.verdict,
        "final_val_loss": result.final_val_loss,
        "result": content,
        "checksum": integrity.checksum(content),
    }


_INSERT_RESULT = sa.insert(results)
_DROP_CHECKPOINTS = sa.delete(checkpoints).where(checkpoints.c.run_id == sa.bindparam("this"))
