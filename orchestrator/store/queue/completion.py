"""Ends of attempts by their worker's own word: finish, stopped, fail; many of them in one transaction.

    lock all runs  →  for each: check the token, decide (pure)  →  results, attempts, series, moves: a statement each

A word that was accepted once is accepted again; one that comes too late, or contradicts the state, is refused alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, DamagedError, LeaseLostError, OrchestratorError
from orchestrator.jobs import AttemptOutcome, LeasePolicy, RunStatus
from orchestrator.store import integrity, series
from orchestrator.store.database import Database
from orchestrator.store.queue.transitions import AttemptEnd, end_attempts, move, status_after_loss
from orchestrator.store.run_rows import COMMANDS, HeldRun, RunRow, lock_held_runs
from orchestrator.store.tables import checkpoints, events, results, run_specs
from worker.records.protocol import Command, Failure, FailureKind, Stopped
from worker.records.result import Result, Verdict
from worker.spec.run import RunSpec
from worker.words import pluralize

ROOM_SECONDS = 30.0
"""Pause of a run whose machine's disk was full: nobody is to blame, and somebody has to make room first."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The last word of one attempt."""

    run_id: str
    attempt: int
    token: str
    word: Result | Stopped | Failure

    @property
    def outcome(self) -> AttemptOutcome:
        """Return the outcome of the attempt."""
        match self.word:
            case Result():
                return AttemptOutcome.SUCCEEDED
            case Stopped():
                return AttemptOutcome.STOPPED
            case Failure(kind=FailureKind.INTERRUPTED):
                return AttemptOutcome.INTERRUPTED
            case Failure():
                return AttemptOutcome.BROKEN

    @property
    def message(self) -> str:
        """Return the message for people."""
        match self.word:
            case Result():
                return self.word.verdict_reason
            case Stopped():
                return f"{self.word.command} at step {self.word.step}"
            case Failure():
                return self.word.message


def _row_after(connection: Connection, held: HeldRun, ending: Ending, policy: LeasePolicy) -> RunRow:
    """Return the run's next row; raises `ConflictError` if the word contradicts the run's state."""
    match ending.word:
        case Result():
            return _after_result(held, ending.word)
        case Stopped():
            return _after_stop(connection, held, ending.word, policy)
        case Failure():
            return _after_failure(connection, held, ending.word, ending.outcome, policy)


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
    if word.command is Command.PAUSE and _was_asked_to_pause(connection, held):
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


def record_endings(
    database: Database, policy: LeasePolicy, endings: Sequence[Ending]
) -> list[AttemptOutcome | OrchestratorError]:
    """Carry out the endings in one transaction; for each its outcome, or what refuses it."""
    with database.writing() as connection:
        held = lock_held_runs(
            database, connection, [(ending.run_id, ending.attempt, ending.token) for ending in endings]
        )
        accepted: dict[str, tuple[Ending, HeldRun, RunRow]] = {}
        answers = [
            _decide(connection, policy, ending, hold, accepted) for ending, hold in zip(endings, held, strict=True)
        ]
        _write(connection, list(accepted.values()))
        return answers


def retry_with_half_micro_batch(connection: Connection, run: RunRow, now: float) -> RunRow | None:
    """Return a live, locked run to be retried after its attempt ran out of memory; None if that is impossible.

    Its next attempt takes half the micro-batch and twice the accumulation: what is trained stays the same, and so the
    run does. Each try is an attempt of its own, and not held against the run. It ends at micro-batches of one sequence:
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
    micro_batch = cut_down_to or execution.micro_batch_sequences or spec.share_sequences()
    return (micro_batch + 1) // 2 if micro_batch > 1 else None


def _decide(
    connection: Connection,
    policy: LeasePolicy,
    ending: Ending,
    held: HeldRun | None,
    accepted: dict[str, tuple[Ending, HeldRun, RunRow]],
) -> AttemptOutcome | OrchestratorError:
    if held is None:
        return LeaseLostError()
    if ending.run_id in accepted and held.live:
        earlier = accepted[ending.run_id][0]
        return earlier.outcome if earlier.outcome is ending.outcome else LeaseLostError()
    if not held.live:
        return ending.outcome if held.outcome is ending.outcome else LeaseLostError()
    try:
        accepted[ending.run_id] = ending, held, _row_after(connection, held, ending, policy)
    except ConflictError as refusal:
        return refusal
    return ending.outcome


def _write(connection: Connection, accepted: Sequence[tuple[Ending, HeldRun, RunRow]]) -> None:
    if not accepted:
        return
    now = accepted[0][1].now
    results = [(ending.word, held) for ending, held, _ in accepted if isinstance(ending.word, Result)]
    if results:
        connection.execute(_INSERT_RESULT, [_result_row(held, result) for result, held in results])
        connection.execute(_DROP_CHECKPOINTS, {"ids": [held.run.id for _, held in results]})  # nobody will resume them
    ends = [
        AttemptEnd(
            run=held.run,
            outcome=ending.outcome,
            message=f"{ending.message}; {held.run.reason}" if held.run.limit_reached else ending.message,
            device_seconds=ending.word.device_seconds,
        )
        for ending, held, _ in accepted
    ]
    charged = end_attempts(connection, ends, now)
    for _, held, _ in accepted:
        if held.last_batch > 0:
            series.merge_small_chunks(connection, held.run.id, held.attempt)
    move(
        connection,
        [
            (held.run, replace(new_run, device_seconds=run.device_seconds))
            for (_, held, new_run), run in zip(accepted, charged, strict=True)
        ],
        now,
    )


def _was_asked_to_pause(connection: Connection, held: HeldRun) -> bool:
    query = sa.select(events.c.sequence).where(
        events.c.run_id == held.run.id,
        events.c.attempt == held.attempt,
        events.c.to_status == RunStatus.PAUSING,
    )
    return connection.execute(query).first() is not None


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
_DROP_CHECKPOINTS = sa.delete(checkpoints).where(checkpoints.c.run_id.in_(sa.bindparam("ids", expanding=True)))
