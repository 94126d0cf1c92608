"""`Attempts`: the worker's side of the queue. Every call shows the secret of its lease, and only the newest one counts.

No peer fences its results: there a zombie, a worker that was given up and came back, may win. Here its token opens
nothing any more, whatever it tries, and a call that was already accepted may be repeated without harm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.columns import columns_of
from orchestrator.errors import ConflictError, DamagedError, LeaseLostError, OrchestratorError
from orchestrator.jobs import AttemptOutcome, LeasePolicy, RunStatus
from orchestrator.storage import Storage
from orchestrator.store import series
from orchestrator.store.database import Database, insert, plain_text
from orchestrator.store.notifications import count_change
from orchestrator.store.queue.batching import TransactionBatcher
from orchestrator.store.queue.completion import Ending, record_endings
from orchestrator.store.queue.transitions import move
from orchestrator.store.run_rows import COMMANDS, HeldRun, check_token, lock_held_runs, trainable_specs
from orchestrator.store.tables import attempts, checkpoints, runs
from worker.records.protocol import (
    Assignment,
    CheckpointNotice,
    Command,
    Failure,
    Heartbeat,
    HeartbeatReply,
    PointsBatch,
    Stopped,
)
from worker.records.result import Observation, Result, TextSamples
from worker.spec.run import RunSpec

Identity = tuple[str, int, str]
"""Run, attempt, token."""
Beat = tuple[Identity, Heartbeat]
PROMPT_SECONDS = 1.0
"""Heartbeats of trials that may be stopped early: the sooner they hear of it, the more of their device is saved."""
SHOWN = ("last_train_loss", "last_val_loss", "tokens_per_second")
"""The newest points' values in a run's row."""


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A batch of points and observations, and who brings it."""

    caller: Identity
    chunk: dict[str, Any]
    observations: Sequence[Observation]
    samples: Sequence[TextSamples]
    newest: Mapping[str, object]
    """The newest values, for the run's row."""


class Attempts:
    """The calls of workers. Thread-safe; calls that come at once share a transaction.

    Every method may raise `StoreError`, and `LeaseLostError` for a lease that has ended or never was.
    """

    def __init__(self, database: Database, policy: LeasePolicy, storage: Storage) -> None:
        self._database = database
        self._policy = policy
        self._storage = storage
        self._hello = TransactionBatcher[Identity, Assignment](self._greet)
        self._beat = TransactionBatcher[Beat, HeartbeatReply](
            self._extend, individually=partial(self._extend, wait=True)
        )
        self._append = TransactionBatcher[Arrival, None](
            self._store_points, individually=partial(self._store_points, wait=True)
        )
        self._end = TransactionBatcher[Ending, AttemptOutcome](partial(record_endings, database, policy))

    def token_opens(self, run_id: str, attempt: int, token: str) -> bool:
        """Return whether the token is that of the attempt; whether its lease lives, the methods below say."""
        with self._database.reading() as connection:
            return check_token(connection, run_id, attempt, token)

    def hello(self, run_id: str, attempt: int, token: str) -> Assignment:
        """Move LEASED → RUNNING; return what to train, and the newest checkpoint of earlier attempts."""
        return self._hello((run_id, attempt, token))

    def heartbeat(self, run_id: str, attempt: int, token: str, beat: Heartbeat) -> HeartbeatReply:
        """Extend the lease, keep the progress, and answer with what the service wants."""
        return self._beat(((run_id, attempt, token), beat))

    def append_points(self, run_id: str, attempt: int, token: str, batch: PointsBatch) -> None:
        """Add a batch to the attempt's series; a batch that was accepted before changes nothing."""
        columns = columns_of(batch.columns)
        self._append(
            Arrival(
                caller=(run_id, attempt, token),
                chunk=series.chunk_row(run_id, attempt, batch.sequence, columns),
                observations=batch.observations,
                samples=batch.samples,
                newest=series.newest_figures(columns),
            )
        )

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

    def finish(self, run_id: str, attempt: int, token: str, result: Result) -> None:
        """Move to SUCCEEDED with its one result; see `completion.py`."""
        self._end(Ending(run_id=run_id, attempt=attempt, token=token, word=result))

    def record_stop(self, run_id: str, attempt: int, token: str, stopped: Stopped) -> None:
        """Record that the worker obeyed cancel or pause. Raises `ConflictError` if nobody had asked it to."""
        self._end(Ending(run_id=run_id, attempt=attempt, token=token, word=stopped))

    def fail(self, run_id: str, attempt: int, token: str, failure: Failure) -> None:
        """Record that the attempt broke down; see `completion.py`."""
        self._end(Ending(run_id=run_id, attempt=attempt, token=token, word=failure))

    def _greet(self, callers: Sequence[Identity]) -> list[Assignment | OrchestratorError]:
        with self._database.writing() as connection:
            held = lock_held_runs(self._database, connection, callers)
            live = {hold.run.id: hold for hold in held if hold is not None and hold.live}
            new = [hold for hold in live.values() if hold.started_at is None]
            if new:
                connection.execute(_START, [self._extension(hold) | {"new_started_at": hold.now} for hold in new])
                begun = [
                    (hold.run, replace(hold.run, status=RunStatus.RUNNING, started_at=hold.run.started_at or hold.now))
                    for hold in new
                    if hold.run.status is RunStatus.LEASED
                ]
                move(connection, begun, new[0].now)
            specs = trainable_specs(connection, list(live))
            return [
                self._assignment(connection, hold, specs[hold.run.id])
                if hold is not None and hold.live
                else LeaseLostError()
                for hold in held
            ]

    def _assignment(
        self, connection: Connection, held: HeldRun, spec: RunSpec | ValidationError | DamagedError
    ) -> Assignment | DamagedError:
        """Return the answer to a hello; a specification that was damaged since the claim is told to its own worker
        alone."""
        if isinstance(spec, DamagedError):
            return DamagedError(f"the specification of {held.run.id} {spec}")
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

    def _extend(self, beats: Sequence[Beat], *, wait: bool = False) -> list[HeartbeatReply | OrchestratorError]:
        with self._database.writing(durable=False) as connection:
            held = lock_held_runs(self._database, connection, [caller for caller, _ in beats], wait=wait)
            live = {
                (hold.run.id, hold.attempt): (hold, beat)
                for hold, (_, beat) in zip(held, beats, strict=True)
                if hold is not None and hold.live
            }
            if live:
                extended, progress = zip(*(self._heartbeat_binds(*pair) for pair in live.values()), strict=True)
                connection.execute(_EXTEND, extended)
                connection.execute(_PROGRESS, progress)
                count_change(connection)
            return [_reply(hold) if hold is not None and hold.live else LeaseLostError() for hold in held]

    def _heartbeat_binds(self, held: HeldRun, beat: Heartbeat) -> tuple[dict[str, object], dict[str, object]]:
        """Return the binds of `_EXTEND` and of `_PROGRESS`."""
        step = min(beat.step, held.run.steps_total)
        seconds = max(held.device_seconds, beat.device_seconds)
        total = held.run.device_seconds + seconds - held.device_seconds
        return (
            self._extension(held)
            | {"new_step": step, "new_device_seconds": seconds, "new_note": plain_text(beat.note)},
            {"this": held.run.id, "new_step": step, "new_device_seconds": total},
        )

    def _store_points(self, arrivals: Sequence[Arrival], *, wait: bool = False) -> list[OrchestratorError | None]:
        with self._database.writing() as connection:  # forced: a worker forgets what was accepted
            held = lock_held_runs(self._database, connection, [arrival.caller for arrival in arrivals], wait=wait)
            new = _new_batches([(h, a) for h, a in zip(held, arrivals, strict=True) if h is not None and h.live])
            if new:
                series.append(connection, [arrival.chunk for _, arrival in new])
                for holder, arrival in new:
                    series.append_reports(
                        connection, holder.run.id, holder.attempt, arrival.observations, arrival.samples
                    )
                _show_newest(connection, new)
                count_change(connection)
            return [None if hold is not None and hold.live else LeaseLostError() for hold in held]

    def _require_live(self, connection: Connection, run_id: str, attempt: int, token: str) -> HeldRun:
        (held,) = lock_held_runs(self._database, connection, [(run_id, attempt, token)])
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


def _reply(held: HeldRun) -> HeartbeatReply:
    """Cancel and pause come first: they are a person's."""
    otherwise = Command.STOP_EARLY if held.run.stop_early else Command.CONTINUE
    return HeartbeatReply(command=COMMANDS.get(held.run.status, otherwise))


def _new_batches(arrivals: Sequence[tuple[HeldRun, Arrival]]) -> list[tuple[HeldRun, Arrival]]:
    """Return the batches that were not accepted before; of several with one number, the first."""
    last: dict[tuple[str, int], int] = {}
    new = []
    for held, arrival in sorted(arrivals, key=lambda pair: pair[1].chunk["sequence"]):
        key = held.run.id, held.attempt
        if arrival.chunk["sequence"] > last.get(key, held.last_batch):
            last[key] = arrival.chunk["sequence"]
            new.append((held, arrival))
    return new


def _show_newest(connection: Connection, arrivals: Sequence[tuple[HeldRun, Arrival]]) -> None:
    """Set the visible losses and pace of locked runs."""
    shown: dict[str, dict[str, object]] = {}
    for held, arrival in arrivals:
        values = shown.setdefault(held.run.id, {name: getattr(held.run, name) for name in SHOWN})
        values |= arrival.newest
    rows = [{"this": id} | {f"new_{name}": newest[name] for name in SHOWN} for id, newest in shown.items()]
    connection.execute(_SHOW, rows)


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


_NOTE = sa.func.coalesce(sa.bindparam("new_note", type_=sa.Text), attempts.c.note)
_EXTEND = (
    sa.update(attempts)
    .where(_MINE)
    .values(_set("expires_at", "heartbeat_at", "step", "device_seconds") | {"note": _NOTE})
)
_START = sa.update(attempts).where(_MINE).values(_set("expires_at", "heartbeat_at", "started_at"))
_PROGRESS = (
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("this"))
    .values(_set("step", "device_seconds") | {"version": runs.c.version + 1})
)
_SHOW = sa.update(runs).where(runs.c.id == sa.bindparam("this")).values(_set(*SHOWN) | {"version": runs.c.version + 1})
