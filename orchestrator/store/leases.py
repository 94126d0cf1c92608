"""`Leases`: the worker's side of the queue. Every call shows the secret of its lease, and only the newest one counts.

No peer fences its results: there a zombie, a worker that was given up and came back, may win. Here its token opens
nothing any more, whatever it tries, and a call that was already accepted may be repeated without harm.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, LeaseLostError
from orchestrator.jobs import LIVE, AttemptOutcome, LeasePolicy, RunStatus
from orchestrator.store import observations, series
from orchestrator.store.database import Database
from orchestrator.store.moves import (
    RunRow,
    add_device_seconds,
    after_loss,
    count_change,
    end_attempt,
    lock_run,
    move,
)
from orchestrator.store.queue import token_hash
from orchestrator.store.tables import attempts, checkpoints, results, run_specs, runs
from worker.protocol import (
    CheckpointNotice,
    Command,
    Failure,
    FailureKind,
    Heartbeat,
    HeartbeatReply,
    PointsBatch,
    Stopped,
)
from worker.record import Result
from worker.spec import RunSpec

COMMANDS = {RunStatus.CANCELLING: Command.CANCEL, RunStatus.PAUSING: Command.PAUSE}
"""What a state asks of the worker; every other live state asks it to continue."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A run whose row is locked, seen by the attempt that claims to hold its lease."""

    run: RunRow
    now: float
    attempt: int
    live: bool
    """Whether this attempt holds the lease."""
    outcome: AttemptOutcome | None
    """How this attempt ended, if it has."""


class Leases:
    """What workers may do. Every method raises `LeaseLostError` for a lease that has ended or never was."""

    def __init__(self, database: Database, policy: LeasePolicy) -> None:
        self._database = database
        self._policy = policy

    def hello(self, run_id: str, attempt: int, token: str) -> tuple[RunSpec, CheckpointNotice | None]:
        """LEASED → RUNNING: what to train, and the newest checkpoint of earlier attempts."""
        with self._database.writing() as connection:
            held = self._live(connection, run_id, attempt, token)
            if held.run.status is RunStatus.LEASED:
                started = replace(held.run, status=RunStatus.RUNNING, started_at=held.run.started_at or held.now)
                self._extend(connection, held, started_at=held.now)
                move(connection, [(held.run, started)], held.now)
            return _spec(connection, run_id), _checkpoint_before(connection, held)

    def heartbeat(self, run_id: str, attempt: int, token: str, beat: Heartbeat) -> HeartbeatReply:
        """Extend the lease, keep the progress, and answer with what the service wants."""
        with self._database.writing(durable=False) as connection:
            held = self._live(connection, run_id, attempt, token)
            step = min(beat.step, held.run.steps_total)
            self._extend(connection, held, step=step)
            add_device_seconds(connection, held.run, beat.device_seconds)
            _update_run(connection, held.run, step=step)
            count_change(connection)
            return HeartbeatReply(command=COMMANDS.get(held.run.status, Command.CONTINUE))

    def append_points(self, run_id: str, attempt: int, token: str, batch: PointsBatch) -> None:
        """Add a batch to the attempt's series; a batch that was accepted before changes nothing."""
        with self._database.writing(durable=False) as connection:
            held = self._live(connection, run_id, attempt, token)
            if series.append(connection, run_id, attempt, batch):
                observations.append(connection, run_id, attempt, batch.observations)
                _update_run(connection, held.run, **series.latest(batch.points))
                count_change(connection)

    def checkpoint(self, run_id: str, attempt: int, token: str, notice: CheckpointNotice) -> None:
        """Record a complete checkpoint, from which a later attempt may go on."""
        with self._database.writing() as connection:
            held = self._live(connection, run_id, attempt, token)
            if notice.step > held.run.steps_total:
                raise ConflictError(f"checkpoint at step {notice.step}, but the run has {held.run.steps_total} steps")
            here = (checkpoints.c.run_id == run_id) & (checkpoints.c.attempt == attempt)
            connection.execute(sa.delete(checkpoints).where(here, checkpoints.c.step == notice.step))
            row = notice.model_dump() | {"run_id": run_id, "attempt": attempt, "recorded_at": held.now}
            connection.execute(sa.insert(checkpoints).values(row))

    def finish(self, run_id: str, attempt: int, token: str, result: Result) -> None:
        """→ SUCCEEDED with its one result, also while a cancel or pause is under way: what is done is done."""

        def succeed(connection: Connection, held: Held) -> RunRow:
            if held.run.status is RunStatus.LEASED:
                raise ConflictError(f"attempt {attempt} of run {run_id} has not said hello and cannot have a result")
            connection.execute(sa.insert(results).values(_result_row(held, result)))
            connection.execute(sa.delete(checkpoints).where(checkpoints.c.run_id == run_id))  # nobody will resume it
            _update_run(connection, held.run, **_final_values(result, held.run.steps_total))
            return replace(held.run, status=RunStatus.SUCCEEDED, reason=None)

        seconds = result.device_seconds
        self._end(run_id, attempt, token, AttemptOutcome.SUCCEEDED, result.verdict_reason, seconds, succeed)

    def stopped(self, run_id: str, attempt: int, token: str, stopped: Stopped) -> None:
        """The worker obeyed: CANCELLING → CANCELLED, PAUSING → PAUSED. `ConflictError` if nobody had asked it to."""

        def stop(connection: Connection, held: Held) -> RunRow:
            if held.run.status not in COMMANDS:
                raise ConflictError(f"run {run_id} is {held.run.status}; nobody asked its worker to stop")
            _update_run(connection, held.run, step=min(stopped.step, held.run.steps_total))
            return after_loss(held.run, AttemptOutcome.STOPPED, stopped.command, self._policy, held.now)

        message = f"obeyed {stopped.command} at step {stopped.step}"
        self._end(run_id, attempt, token, AttemptOutcome.STOPPED, message, stopped.device_seconds, stop)

    def fail(self, run_id: str, attempt: int, token: str, failure: Failure) -> None:
        """The attempt broke down: tried again after a while, or FAILED where that would not help."""
        interrupted = failure.kind is FailureKind.INTERRUPTED
        outcome = AttemptOutcome.INTERRUPTED if interrupted else AttemptOutcome.BROKEN

        def lose(_connection: Connection, held: Held) -> RunRow:
            if failure.kind is FailureKind.PROGRAM and held.run.status is not RunStatus.CANCELLING:
                failures = held.run.failures + 1
                return replace(held.run, status=RunStatus.FAILED, reason=failure.message, failures=failures)
            return after_loss(held.run, outcome, failure.message, self._policy, held.now)

        self._end(run_id, attempt, token, outcome, failure.message, failure.device_seconds, lose)

    # Helpers, in the order of their use

    def _end(
        self,
        run_id: str,
        attempt: int,
        token: str,
        outcome: AttemptOutcome,
        message: str,
        device_seconds: float,
        decide: Callable[[Connection, Held], RunRow],
    ) -> None:
        """End the attempt by its own word; a repetition of a word that was accepted is accepted again."""
        with self._database.writing() as connection:
            held = self._held(connection, run_id, attempt, token)
            if not held.live and held.outcome is outcome:
                return
            if not held.live:
                raise LeaseLostError
            after = decide(connection, held)
            end_attempt(connection, held.run, outcome, held.now, message=message, device_seconds=device_seconds)
            series.seal(connection, run_id, attempt)
            move(connection, [(held.run, after)], held.now)

    def _live(self, connection: Connection, run_id: str, attempt: int, token: str) -> Held:
        held = self._held(connection, run_id, attempt, token)
        if not held.live:
            raise LeaseLostError
        return held

    def _held(self, connection: Connection, run_id: str, attempt: int, token: str) -> Held:
        """Lock the run and check the token; an unknown run, attempt or token all look the same from outside."""
        found = lock_run(self._database, connection, run_id)
        if found is None or not 1 <= attempt <= found[0].attempt:
            raise LeaseLostError
        run, now = found
        # A statement of its own, after the lock: only then is the attempt's row as new as the run's.
        query = sa.select(attempts.c.token_hash, attempts.c.outcome)
        row = connection.execute(query.where(attempts.c.run_id == run_id, attempts.c.attempt == attempt)).one()
        if not secrets.compare_digest(str(row.token_hash), token_hash(token)):
            raise LeaseLostError
        live = run.status in LIVE and run.attempt == attempt
        return Held(run=run, now=now, attempt=attempt, live=live, outcome=row.outcome)

    def _extend(self, connection: Connection, held: Held, **progress: object) -> None:
        mine = (attempts.c.run_id == held.run.id) & (attempts.c.attempt == held.attempt)
        until = held.now + self._policy.ttl_seconds
        query = sa.update(attempts).where(mine)
        connection.execute(query.values(expires_at=until, heartbeat_at=held.now, **progress))


def _update_run(connection: Connection, run: RunRow, **values: object) -> None:
    """Set the visible progress of a locked run; who calls it ends the transaction with `count_change` or a `move`."""
    query = sa.update(runs).where(runs.c.id == run.id)
    connection.execute(query.values(**values, version=runs.c.version + 1))


def _spec(connection: Connection, run_id: str) -> RunSpec:
    query = sa.select(run_specs.c.spec).where(run_specs.c.run_id == run_id)
    return RunSpec.model_validate_json(connection.execute(query).scalar_one())


def _checkpoint_before(connection: Connection, held: Held) -> CheckpointNotice | None:
    """The last checkpoint of the newest earlier attempt that has one: it may have begun behind an older one's."""
    fields = [checkpoints.c[name] for name in CheckpointNotice.model_fields]
    query = sa.select(*fields).where(checkpoints.c.run_id == held.run.id, checkpoints.c.attempt < held.attempt)
    newest = query.order_by(checkpoints.c.attempt.desc(), checkpoints.c.step.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else CheckpointNotice(**row._mapping)


def _result_row(held: Held, result: Result) -> dict[str, object]:
    return {
        "run_id": held.run.id,
        "attempt": held.attempt,
        "recorded_at": held.now,
        "verdict": result.verdict,
        "final_val_loss": result.final_val_loss,
        "result": result.model_dump_json(),
    }


def _final_values(result: Result, steps_total: int) -> dict[str, object]:
    """The progress columns of a run that has its result."""
    return {
        "step": min(result.steps, steps_total),
        "last_train_loss": result.final_train_loss,
        "last_val_loss": result.final_val_loss,
        "tokens_per_second": result.tokens_per_second,
    }
