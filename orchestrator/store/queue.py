"""`Queue`: the dispatcher's and the user's side of the durable queue; the worker's side is `leases.py`.

    submit ─► claim ─► (the worker: hello, heartbeat, …, finish) ─► ended
                 └──── release (the process is dead) | reap (nobody heard of it in time) ─► retry_wait, queued or failed

Every method is one transaction, safe from any number of threads and processes.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.experiments import ComparisonSpec
from orchestrator.jobs import (
    LIVE,
    TERMINAL,
    AttemptOutcome,
    ExperimentId,
    Lease,
    LeasePolicy,
    RunId,
    RunStatus,
    Token,
)
from orchestrator.store import growth, submission
from orchestrator.store.database import Database
from orchestrator.store.moves import (
    RunRow,
    after_loss,
    count_change,
    end_attempt,
    known_id,
    lock,
    lock_run,
    move,
    read_clock,
    select_runs,
)
from orchestrator.store.tables import attempts, experiments, is_claimable, run_specs, runs
from worker.spec import RunSpec

TOKEN_BYTES = 32
"""256 random bits: a lease's secret cannot be guessed, so an unsalted hash of it is enough."""
RELEASES = frozenset({AttemptOutcome.LOST, AttemptOutcome.BROKEN, AttemptOutcome.INTERRUPTED})
"""How an attempt can end by the word of the dispatcher."""


def token_hash(token: str) -> str:
    """What is stored of a lease's secret."""
    return hashlib.sha256(token.encode()).hexdigest()


class Queue:
    """The durable queue of runs. `database` must be migrated."""

    def __init__(self, database: Database, policy: LeasePolicy) -> None:
        self._database = database
        self._policy = policy
        self._reaped_at: float | None = None
        self._grace_ends_at = 0.0

    # The user's side

    def submit(self, spec: ComparisonSpec, key: str | None = None) -> tuple[ExperimentId, bool]:
        """Queue an experiment; see `submission.submit`."""
        return submission.submit(self._database, spec, key)

    def close_experiment(self, experiment_id: str) -> None:
        """Let an experiment have no runs but those that it has. Raises `NotFoundError`."""
        with self._database.writing() as connection:
            growth.close(connection, experiment_id)

    def cancel_run(self, run_id: str) -> None:
        """Cancel a run: at once if it waits, else as soon as its worker has stopped. Repeating it changes nothing.

        Raises `NotFoundError`, and `ConflictError` if the run has already ended in another way.
        """
        with self._database.writing() as connection:
            found = lock_run(self._database, connection, run_id)
            if found is None:
                raise NotFoundError(f"there is no run {run_id!r}")
            run, now = found
            if run.status in TERMINAL - {RunStatus.CANCELLED}:
                raise ConflictError(f"run {run_id} has already {run.status}; there is nothing to cancel")
            move(connection, _cancellations([run]), now)

    def cancel_experiment(self, experiment_id: str) -> None:
        """Cancel every run that has not ended. Raises `NotFoundError`."""
        with self._database.writing() as connection:
            known = sa.select(experiments.c.number).where(experiments.c.id == known_id(experiment_id))
            number = connection.execute(known).scalar_one_or_none()
            if number is None:
                raise NotFoundError(f"there is no experiment {experiment_id!r}")
            query = select_runs().where(
                runs.c.experiment_number == number, runs.c.status.not_in(TERMINAL | {RunStatus.CANCELLING})
            )
            locked = lock(self._database, connection, query.order_by(runs.c.position))
            move(connection, _cancellations(locked.runs), locked.now)

    # The dispatcher's side

    def claim(self, *, cpus: int, gpus: int, limit: int) -> tuple[Lease, ...]:
        """Lease waiting runs, the oldest first, until `limit` or the first one that does not fit what is left.

        That one is waited for and not overtaken, so that a large run is not starved by small ones. Runs that the
        cluster can never hold are passed over; see `mark_unschedulable`.
        """
        if limit < 1 or not self._anything(self._due()):
            return ()
        with self._database.writing() as connection:
            locked = lock(self._database, connection, self._due().limit(limit), wait=False)
            return self._lease(connection, _fitting(locked.runs, cpus, gpus), locked.now)

    def release(
        self, run_id: str, attempt: int, token: Token | None, outcome: AttemptOutcome, message: str | None
    ) -> bool:
        """End a live attempt whose process is known to be dead; False where that attempt is not live any more.

        `outcome`: LOST or BROKEN count against the run, INTERRUPTED does not. Without `token` the attempt's number
        alone says which lease is meant: for a dispatcher that ends what an earlier one had started.
        """
        if outcome not in RELEASES:
            raise ValueError(f"a dispatcher cannot release an attempt as {outcome}; use one of {sorted(RELEASES)}")
        with self._database.writing() as connection:
            found = lock_run(self._database, connection, run_id)
            if found is None or found[0].status not in LIVE or found[0].attempt != attempt:
                return False
            run, now = found
            if token is not None and not _opens(connection, run, token):
                return False
            self._lose(connection, [run], outcome, message or f"attempt {attempt} was {outcome}", now)
            return True

    def reap(self) -> tuple[tuple[RunId, int], ...]:
        """End the attempts whose lease has expired and return them as (run, attempt). Call it several times in a TTL.

        The first call, and one after a pause (the service was down, the machine was asleep), only begins a grace of
        one TTL: workers that could reach nobody in the meantime get the time to be heard.
        """
        expired = (
            select_runs()
            .join(attempts, (attempts.c.run_id == runs.c.id) & (attempts.c.attempt == runs.c.attempt))
            .where(attempts.c.ended_at.is_(None), attempts.c.expires_at <= self._database.now())
        )
        if self._in_grace() or not self._anything(expired):
            return ()
        with self._database.writing() as connection:
            locked = lock(self._database, connection, expired, wait=False)
            expired_runs = [run for run in locked.runs if _expired(connection, run, locked.now)]
            reason = f"no sign of life for {self._policy.ttl_seconds:g} s"
            self._lose(connection, expired_runs, AttemptOutcome.LOST, reason, locked.now)
            return tuple((run.id, run.attempt) for run in expired_runs)

    def interrupt_all(self) -> int:
        """End every live attempt without blame: their processes died with the service. Returns how many.

        Only for a service that owns all of its workers, at its start.
        """
        with self._database.writing() as connection:
            query = select_runs().where(runs.c.status.in_(LIVE)).order_by(runs.c.id)
            locked = lock(self._database, connection, query)
            reason = "the service was stopped; the run goes on from its last checkpoint"
            self._lose(connection, locked.runs, AttemptOutcome.INTERRUPTED, reason, locked.now, held="heartbeat_at")
            return len(locked.runs)

    def overdue_cancels(self) -> tuple[tuple[RunId, int], ...]:
        """The (run, attempt) that were asked to stop and have not within the grace time: end their process, then
        `release` them."""
        stopping = runs.c.status.in_([RunStatus.CANCELLING, RunStatus.PAUSING])
        late = runs.c.stop_requested_at <= self._database.now() - self._policy.cancel_grace_seconds
        query = sa.select(runs.c.id, runs.c.attempt).where(stopping, late).order_by(runs.c.stop_requested_at)
        with self._database.reading() as connection:
            return tuple((RunId(row.id), row.attempt) for row in connection.execute(query))

    def mark_unschedulable(self, *, cpus: int, gpus: int) -> int:
        """Say of every waiting run whether a cluster of that size can ever hold it; returns how many it cannot.

        Such a run shows why as its `reason`, blocks nobody, and comes back when a larger cluster is told of.
        """
        holds = (runs.c.cpus <= cpus) & (runs.c.gpus <= gpus)
        wrong = is_claimable & (runs.c.schedulable != holds)
        too_large = sa.select(sa.func.count()).select_from(runs).where(is_claimable, ~holds)
        with self._database.reading() as connection:
            count = int(connection.execute(too_large).scalar_one())
            if connection.execute(sa.select(runs.c.id).where(wrong).limit(1)).first() is None:
                return count
        reason = f"needs more than the {cpus} CPUs and {gpus} GPUs that the cluster has"
        with self._database.writing() as connection:
            query = sa.update(runs).where(wrong)
            text = sa.case((holds, sa.null()), else_=reason)
            connection.execute(query.values(schedulable=holds, reason=text, version=runs.c.version + 1))
            count_change(connection)
        return count

    # Helpers, in the order of their use

    def _due(self) -> sa.Select[Any]:
        """The runs that may be claimed now, in the order of the queue."""
        due = runs.c.available_at <= self._database.now()
        query = select_runs().where(is_claimable, runs.c.schedulable, due)
        return query.order_by(runs.c.experiment_number, runs.c.position)

    def _anything(self, query: sa.Select[Any]) -> bool:
        """Whether `query` finds a row: a look that takes no lock, since most looks find nothing."""
        with self._database.reading() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def _lease(self, connection: Connection, waiting: list[RunRow], now: float) -> tuple[Lease, ...]:
        """Move the runs to LEASED, each with a new attempt and a new secret."""
        if not waiting:
            return ()
        leased = [replace(run, status=RunStatus.LEASED, attempt=run.attempt + 1, reason=None) for run in waiting]
        tokens = [Token(secrets.token_urlsafe(TOKEN_BYTES)) for _ in leased]
        rows = [
            {
                "run_id": run.id,
                "attempt": run.attempt,
                "token_hash": token_hash(token),
                "leased_at": now,
                "expires_at": now + self._policy.ttl_seconds,
            }
            for run, token in zip(leased, tokens, strict=True)
        ]
        connection.execute(sa.insert(attempts), rows)
        specs = _specs(connection, [run.id for run in leased])
        move(connection, zip(waiting, leased, strict=True), now)
        return tuple(
            Lease(run_id=run.id, attempt=run.attempt, token=token, spec=specs[run.id])
            for run, token in zip(leased, tokens, strict=True)
        )

    def _lose(
        self,
        connection: Connection,
        live: Iterable[RunRow],
        outcome: AttemptOutcome,
        reason: str,
        now: float,
        *,
        held: Literal["expires_at", "heartbeat_at"] = "expires_at",
    ) -> None:
        """End the live attempts without a result and send their runs where they belong.

        Until now, but no longer than `held`, an attempt kept its device: after the service's own absence its last
        sign of life is all that is known.
        """
        live = list(live)
        for run in live:
            until = min(now, _moment(connection, run, held) or now)
            started = _moment(connection, run, "started_at")
            seconds = max(until - started, 0.0) if started is not None else None
            end_attempt(connection, run, outcome, now, message=reason, device_seconds=seconds)
        move(connection, [(run, after_loss(run, outcome, reason, self._policy, now)) for run in live], now)

    def _in_grace(self) -> bool:
        with self._database.reading() as connection:
            now = read_clock(self._database, connection)
        asleep = self._reaped_at is None or now - self._reaped_at > self._policy.ttl_seconds
        if asleep:
            self._grace_ends_at = now + self._policy.ttl_seconds
        self._reaped_at = now
        return now < self._grace_ends_at


def _cancellations(found: Iterable[RunRow]) -> list[tuple[RunRow, RunRow]]:
    """The moves that cancel these runs; none for those that are on their way already."""
    pairs = []
    for run in found:
        if run.status in (RunStatus.CANCELLING, RunStatus.CANCELLED):
            continue
        to = RunStatus.CANCELLING if run.status in LIVE else RunStatus.CANCELLED
        pairs.append((run, replace(run, status=to, reason="cancelled" if to in TERMINAL else "asked to cancel")))
    return pairs


def _fitting(waiting: Iterable[RunRow], cpus: int, gpus: int) -> list[RunRow]:
    """The head of the queue that fits together."""
    fitting = []
    for run in waiting:
        if run.cpus > cpus or run.gpus > gpus:
            break
        cpus, gpus = cpus - run.cpus, gpus - run.gpus
        fitting.append(run)
    return fitting


def _specs(connection: Connection, ids: list[RunId]) -> dict[RunId, RunSpec]:
    query = sa.select(run_specs).where(run_specs.c.run_id.in_(ids))
    return {RunId(row.run_id): RunSpec.model_validate_json(row.spec) for row in connection.execute(query)}


def _opens(connection: Connection, run: RunRow, token: str) -> bool:
    """Whether the token is the one of the run's newest attempt."""
    query = sa.select(attempts.c.token_hash).where(attempts.c.run_id == run.id, attempts.c.attempt == run.attempt)
    return secrets.compare_digest(str(connection.execute(query).scalar_one()), token_hash(token))


def _moment(connection: Connection, run: RunRow, column: str) -> float | None:
    """A moment of the run's newest attempt, if it has come."""
    query = sa.select(attempts.c[column]).where(attempts.c.run_id == run.id, attempts.c.attempt == run.attempt)
    moment = connection.execute(query).scalar_one()
    return None if moment is None else float(moment)


def _expired(connection: Connection, run: RunRow, now: float) -> bool:
    """Whether the locked run's lease is over: asked again under the lock, since a heartbeat may have come first."""
    if run.status not in LIVE:
        return False
    expires_at = _moment(connection, run, "expires_at")
    return expires_at is not None and expires_at <= now
