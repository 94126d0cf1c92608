"""`Attempts`: the worker's side of the queue. Every call shows the secret of its lease, and only the newest one counts.

No peer fences its results: there a zombie, a worker that was given up and came back, may win. Here its token opens
nothing any more, whatever it tries, and a call that was already accepted may be repeated without harm.
"""

from dataclasses import replace

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.columns import FIELDS, columns_of
from orchestrator.errors import ConflictError, DamagedError, LeaseLostError
from orchestrator.jobs import LeasePolicy, RunStatus
from orchestrator.storage import Storage
from orchestrator.store import series
from orchestrator.store.database import Database, insert, plain_text
from orchestrator.store.notifications import count_change
from orchestrator.store.queue.completion import record_ending
from orchestrator.store.queue.transitions import move
from orchestrator.store.run_rows import COMMANDS, HeldRun, check_token, lock_held_run, trainable_specs
from orchestrator.store.tables import attempts, checkpoints, runs
from worker.records.protocol import (
    Assignment,
    CheckpointNotice,
    Command,
    Heartbeat,
    HeartbeatReply,
    LastWord,
    PointsBatch,
)
from worker.spec.run import RunSpec

PROMPT_SECONDS = 1.0
"""Heartbeats of trials that may be stopped early: the sooner they hear of it, the more of their device is saved."""
NEWEST_VALUES = ("last_train_loss", "last_val_loss", "tokens_per_second")
"""The newest points' values in a run's row."""


class Attempts:
    """The calls of workers. Thread-safe; each is one transaction.

    Every method may raise `StoreError`, and `LeaseLostError` for a lease that has ended or never was.
    """

    def __init__(self, database: Database, policy: LeasePolicy, storage: Storage) -> None:
        self._database = database
        self._policy = policy
        self._storage = storage

    def token_opens(self, run_id: str, attempt: int, token: str) -> bool:
        """Return whether the token is that of the attempt; whether its lease lives, the methods below say."""
        with self._database.reading() as connection:
            return check_token(connection, run_id, attempt, token)

    def hello(self, run_id: str, attempt: int, token: str) -> Assignment:
        """Move LEASED → RUNNING; return what to train, and the newest checkpoint of earlier attempts. Raises
        `DamagedError` for a specification that was damaged since the claim."""
        with self._database.writing() as connection:
            held = self._require_live(connection, run_id, attempt, token)
            if held.started_at is None:
                connection.execute(_START, self._extension(held) | {"new_started_at": held.now})
                if held.run.status is RunStatus.LEASED:
                    started_at = held.run.started_at or held.now
                    move(
                        connection,
                        [(held.run, replace(held.run, status=RunStatus.RUNNING, started_at=started_at))],
                        held.now,
                    )
            return self._assignment(connection, held, trainable_specs(connection, [held.run.id])[held.run.id])

    def heartbeat(self, run_id: str, attempt: int, token: str, beat: Heartbeat) -> HeartbeatReply:
        """Extend the lease, keep the progress, and answer with what the service wants."""
        with self._database.writing(durable=False) as connection:
            held = self._require_live(connection, run_id, attempt, token)
            step = min(beat.step, held.run.steps_total)
            seconds = max(held.device_seconds, beat.device_seconds)
            told = {"new_step": step, "new_device_seconds": seconds, "new_note": plain_text(beat.note)}
            connection.execute(_EXTEND, self._extension(held) | told)
            total = held.run.device_seconds + seconds - held.device_seconds
            connection.execute(_PROGRESS, {"this": held.run.id, "new_step": step, "new_device_seconds": total})
            count_change(connection)
            # Cancel and pause come first: they are a person's.
            otherwise = Command.STOP_EARLY if held.run.stop_early else Command.CONTINUE
            return HeartbeatReply(command=COMMANDS.get(held.run.status, otherwise))

    def append_points(self, run_id: str, attempt: int, token: str, batch: PointsBatch) -> None:
        """Add a batch to the attempt's series; a batch that was accepted before changes nothing."""
        columns = columns_of(batch.columns, [name for name in FIELDS if getattr(batch.columns, name) is not None])
        chunk = series.chunk_row(run_id, attempt, batch.sequence, columns)
        newest = series.newest_figures(columns)
        with self._database.writing() as connection:  # forced: a worker forgets what was accepted
            held = self._require_live(connection, run_id, attempt, token)
            if batch.sequence <= held.last_batch:
                return
            series.append(connection, chunk)
            series.append_reports(connection, run_id, attempt, batch.observations, batch.samples)
            connection.execute(_SHOW, {"this": run_id} | {f"new_{name}": newest.get(name) for name in NEWEST_VALUES})
            count_change(connection)

    def checkpoint(self, run_id: str, attempt: int, token: str, notice: CheckpointNotice) -> None:
        """Record a complete checkpoint, from which a later attempt may go on."""
        with self._database.writing() as connection:
            held = self._require_live(connection, run_id, attempt, token)
            if notice.step > held.run.steps_total:
                raise ConflictError(f"checkpoint at step {notice.step}, but the run has {held.run.steps_total} steps")
            row = notice.model_dump() | {"run_id": run_id, "attempt": attempt, "recorded_at": held.now}
            upsert = insert(connection, checkpoints).values(row)
            upsert = upsert.on_conflict_do_update(index_elements=list(checkpoints.primary_key), set_=row)
            connection.execute(upsert)

    def finish(self, run_id: str, attempt: int, token: str, word: LastWord) -> None:
        """End the attempt by its worker's last word: the run's one result, that it obeyed cancel or pause, or that it
        broke down; see `completion.py`. Raises `ConflictError` if nobody asked it to stop."""
        record_ending(self._database, self._policy, run_id, attempt, token, word)

    def _assignment(
        self, connection: Connection, held: HeldRun, spec: RunSpec | ValidationError | DamagedError
    ) -> Assignment:
        if isinstance(spec, DamagedError):
            raise DamagedError(f"the specification of {held.run.id} {spec}")
        if isinstance(spec, ValidationError):
            raise spec
        run, storage, seconds = held.run, self._storage, self._policy.heartbeat_seconds
        return Assignment(
            run_id=run.id,
            attempt=held.attempt,
            spec=spec,
            lease_seconds=self._policy.ttl_seconds,
            heartbeat_seconds=seconds if run.stop_early is None else min(seconds, PROMPT_SECONDS),
            run_folder=str(storage.runs_folder() / run.id),
            dataset_folder=str(storage.datasets_folder()),
            checkpoint=_checkpoint_before(connection, held),
            counted_steps=_counted_steps(connection, held),
            micro_batch_sequences=run.micro_batch_sequences,
            checkpoint_url=storage.run_url(run.id),
            dataset_url=storage.dataset_url,
        )

    def _require_live(self, connection: Connection, run_id: str, attempt: int, token: str) -> HeldRun:
        held = lock_held_run(self._database, connection, run_id, attempt, token)
        if held is None or not held.live:
            raise LeaseLostError
        return held

    def _extension(self, held: HeldRun) -> dict[str, object]:
        """Return the binds of `_EXTEND` and `_START` that say whose lease lasts how much longer."""
        return {
            "this": held.run.id,
            "this_attempt": held.attempt,
            "new_expires_at": held.now + self._policy.ttl_seconds,
            "new_heartbeat_at": held.now,
        }


def _checkpoint_before(connection: Connection, held: HeldRun) -> CheckpointNotice | None:
    """Return the last checkpoint of the newest earlier attempt that has one: it may have begun behind an older
    one's."""
    if held.attempt == 1:
        return None
    fields = [checkpoints.c[name] for name in CheckpointNotice.model_fields]
    query = sa.select(*fields).where(checkpoints.c.run_id == held.run.id, checkpoints.c.attempt < held.attempt)
    newest = query.order_by(checkpoints.c.attempt.desc(), checkpoints.c.step.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else CheckpointNotice(**row._mapping)


def _counted_steps(connection: Connection, held: HeldRun) -> dict[int, int]:
    """Return for each earlier attempt its last reported step, cut at the first step of a later attempt, which took over
    there."""
    if held.attempt == 1:
        return {}
    attempt, step = checkpoints.c.attempt, checkpoints.c.step
    bounds = sa.select(attempt, sa.func.min(step), sa.func.max(step)).group_by(attempt).order_by(attempt.desc())
    own_bounds = bounds.where(checkpoints.c.run_id == held.run.id, attempt < held.attempt)
    counted: dict[int, int] = {}
    bound = held.run.steps_total
    for earlier, first, last in connection.execute(own_bounds):
        if first <= bound:
            counted[earlier] = min(last, bound)
        bound = min(first, bound)
    return counted


# The statements of the hot path, built once.

_MINE = (attempts.c.run_id == sa.bindparam("this")) & (attempts.c.attempt == sa.bindparam("this_attempt"))


def _set(*names: str) -> dict[str, sa.BindParameter[object]]:
    return {name: sa.bindparam(f"new_{name}") for name in names}


def _new_or_stored(column: sa.Column[object]) -> sa.ColumnElement[object]:
    """Return the new value of a column, or the stored one if the new one is null."""
    return sa.func.coalesce(sa.bindparam(f"new_{column.name}", type_=column.type), column)


_EXTEND = (
    sa.update(attempts)
    .where(_MINE)
    .values(_set("expires_at", "heartbeat_at", "step", "device_seconds") | {"note": _new_or_stored(attempts.c.note)})
)
_START = sa.update(attempts).where(_MINE).values(_set("expires_at", "heartbeat_at", "started_at"))
_PROGRESS = (
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("this"))
    .values(_set("step", "device_seconds") | {"version": runs.c.version + 1})
)
_SHOW = (
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("this"))
    .values({name: _new_or_stored(runs.c[name]) for name in NEWEST_VALUES} | {"version": runs.c.version + 1})
)
