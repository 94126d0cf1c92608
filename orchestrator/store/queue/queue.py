"""`Queue`: the dispatcher's side of the durable queue; the worker's side is `attempts.py`.

    submit ─► claim ─► (the worker: hello, heartbeat, …, finish) ─► ended
                 └──── release (the process is dead) | reap (nobody heard of it in time) ─► retry_wait, queued or failed

Every method is one transaction, safe from any number of threads and processes.
"""

import json
import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import takewhile
from typing import Any, Literal

import sqlalchemy as sa
import structlog
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.activity import DISPATCHER
from orchestrator.errors import DamagedError, DiskFullError
from orchestrator.jobs import LIVE, AttemptOutcome, Lease, LeasePolicy, LiveAttempt, RunId, RunStatus, TimeLimit, Token
from orchestrator.store import integrity
from orchestrator.store.admin import quotas
from orchestrator.store.database import Database, plain_text
from orchestrator.store.notifications import count_change
from orchestrator.store.queue import completion, time_limits
from orchestrator.store.queue.capacity import FreeCapacity, Node, NodeId, largest_nodes, shortfall
from orchestrator.store.queue.transitions import (
    AttemptEnd,
    end_attempts,
    longest_backoff_seconds,
    move,
    status_after_loss,
)
from orchestrator.store.run_rows import RunRow, lock, lock_run, select_runs, token_hash, trainable_specs
from orchestrator.store.tables import QUEUE_ORDER, attempts, is_claimable, leaders, runs
from worker.schema import first_fault
from worker.spec.run import RunSpec

log = structlog.get_logger(__name__)

TOKEN_BYTES = 32
"""256 random bits: a lease's secret cannot be guessed, so an unsalted hash of it is enough."""
REFUSED_SECONDS = 60.0
"""The time after which a run that the service could not train is checked again."""
MOST_NODES_LOST = 5
"""An attempt that ends with its node is no failure of the run, unless so many in a row do: it may be why."""
RELEASES = frozenset({AttemptOutcome.LOST, AttemptOutcome.BROKEN, AttemptOutcome.INTERRUPTED})
"""The ends of an attempt by the word of the dispatcher."""


class Queue:
    """The durable queue of runs. `database` must be migrated."""

    def __init__(self, database: Database, policy: LeasePolicy) -> None:
        self._database = database
        self._policy = policy
        self._reaped_at: float | None = None
        self._grace_ends_at = 0.0
        # Those that may be claimed now. One that waits for nothing was never to wait: when it came is of no account.
        fresh = (runs.c.status == RunStatus.QUEUED) & runs.c.reason.is_(None)
        waits = max(longest_backoff_seconds(policy), REFUSED_SECONDS)
        is_due = sa.or_(fresh, database.has_come(runs.c.available_at, waits))
        self._due = select_runs().where(is_claimable, runs.c.schedulable, is_due).order_by(*QUEUE_ORDER)

    def claim(self, room: FreeCapacity, limit: int) -> tuple[tuple[Lease, NodeId], ...]:
        """Lease waiting runs in the order of the queue, each with the node that it fits on; takes its place in `room`.

        It ends at `limit` or at the first run that does not fit: that one is waited for and not overtaken, so that a
        large run is not starved by small ones. Runs that the cluster can never hold are passed over; see
        `mark_unschedulable`; so are those whose key has used up its quota (`orchestrator/store/admin/quotas.py`).
        """
        if limit < 1 or not self._finds_any(self._due):
            return ()
        with self._database.writing() as connection:
            waiting, now = quotas.lock_within_quotas(self._database, connection, self._due, limit)
            fitting = []
            for run in waiting:
                if (node := room.take(run.cpus, run.gpus)) is None:
                    break
                fitting.append((run, node))
            return self._lease(connection, fitting, now)

    def live_attempts(self) -> tuple[LiveAttempt, ...]:
        """Return every attempt that holds a lease."""
        of_attempt = (attempts.c.run_id, attempts.c.attempt, attempts.c.node)
        query = sa.select(*of_attempt, runs.c.cpus, runs.c.gpus)
        live = query.join(runs, runs.c.id == attempts.c.run_id).where(attempts.c.ended_at.is_(None))
        with self._database.reading() as connection:
            return tuple(LiveAttempt(**row._mapping) for row in connection.execute(live.order_by(attempts.c.run_id)))

    def release(
        self,
        run_id: str,
        attempt: int,
        outcome: AttemptOutcome,
        message: str | None,
        *,
        out_of_memory: bool = False,
        node_died: bool = False,
    ) -> bool:
        """End a live attempt whose process is known to be dead; False if that attempt is not live any more.

        `outcome`: LOST or BROKEN count against the run, INTERRUPTED does not. The attempt's number says which lease is
        meant: no number is given twice. `out_of_memory`: the host's memory did not suffice, so that a smaller
        micro-batch may help. `node_died`: its machine, or Ray on it, ended first; INTERRUPTED is LOST where that has
        happened to the run's last `MOST_NODES_LOST` attempts.
        """
        if outcome not in RELEASES:
            raise ValueError(f"a dispatcher cannot release an attempt as {outcome}; use one of {sorted(RELEASES)}")
        is_live = (attempts.c.run_id == run_id) & (attempts.c.attempt == attempt) & attempts.c.ended_at.is_(None)
        if not self._finds_any(sa.select(attempts.c.run_id).where(is_live)):
            return False  # nearly all were ended by their worker's own word
        with self._database.writing() as connection:
            locked_run = lock_run(self._database, connection, run_id)
            if locked_run is None or locked_run[0].status not in LIVE or locked_run[0].attempt != attempt:
                return False
            run, now = locked_run
            message = message or f"attempt {attempt} was {outcome}"
            if node_died and _lost_nodes_in_a_row(connection, run, message) + 1 >= MOST_NODES_LOST:
                outcome = AttemptOutcome.LOST
            smaller = completion.retry_with_half_micro_batch(connection, run, now) if out_of_memory else None
            self._lose(connection, [run], outcome, message, now, after=smaller)
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
        self._shorten_leases()
        with self._database.reading() as connection:
            now = self._database.read_clock(connection)
        ttl_seconds = self._policy.ttl_seconds
        if self._reaped_at is None or not 0 <= now - self._reaped_at <= ttl_seconds:  # asleep until now
            self._grace_ends_at = now + ttl_seconds
        self._reaped_at = now
        if now < self._grace_ends_at or not self._finds_any(expired):
            return ()
        try:
            with self._database.writing() as connection:
                locked_runs, now = lock(self._database, connection, expired, wait=False)
                # Asked again under the lock: a heartbeat may have come first.
                moments = _attempt_times(connection, [run for run in locked_runs if run.status in LIVE], "expires_at")
                lost = [run for run in locked_runs if run.id in moments and (moments[run.id][1] or now) <= now]
                never_heard = [run for run in lost if moments[run.id][0] is None]
                reason = f"the worker did not begin within {self._policy.start_seconds:g} s"
                self._lose(connection, never_heard, AttemptOutcome.LOST, reason, now)
                silent = [run for run in lost if moments[run.id][0] is not None]
                reason = f"no sign of life for {self._policy.ttl_seconds:g} s"
                self._lose(connection, silent, AttemptOutcome.LOST, reason, now)
                return tuple((run.id, run.attempt) for run in lost)
        except DiskFullError:
            self._reaped_at = None  # no heartbeat could be kept either: once there is room, the workers get their grace
            raise

    def interrupt_all(self, spared: Collection[tuple[RunId, int]] = ()) -> int:
        """End every live attempt but the `spared` ones without blame: their processes died with a dispatcher.

        Only for the dispatcher that has come to lead. Returns how many.
        """
        with self._database.writing() as connection:
            query = select_runs().where(runs.c.status.in_(LIVE)).order_by(runs.c.id)
            locked_runs, now = lock(self._database, connection, query)
            reason = "the service was stopped; the run goes on from its last checkpoint"
            lost = [run for run in locked_runs if (run.id, run.attempt) not in spared]
            self._lose(connection, lost, AttemptOutcome.INTERRUPTED, reason, now, held="heartbeat_at")
            return len(lost)

    def overdue_cancels(self) -> tuple[tuple[RunId, int], ...]:
        """Return the (run, attempt) that were asked to stop and have not within the grace time: end their process, then
        `release` them."""
        # Only runs that are being stopped have the moment, and an index of its own finds them among all there are.
        stopping = runs.c.stop_requested_at.is_not(None)
        grace = self._policy.cancel_grace_seconds
        late = self._database.has_come(runs.c.stop_requested_at + grace, grace)
        query = sa.select(runs.c.id, runs.c.attempt).where(stopping, late).order_by(runs.c.stop_requested_at)
        with self._database.reading() as connection:
            return tuple((RunId(row.id), row.attempt) for row in connection.execute(query))

    def stop_late(self) -> tuple[tuple[RunId, TimeLimit], ...]:
        """Stop the runs whose time is up; see `time_limits.stop_late`."""
        return time_limits.stop_late(self._database)

    def mark_unschedulable(self, nodes: Sequence[Node]) -> None:
        """Mark every waiting run by whether a node could ever hold it.

        One that none can shows why as its `reason`, blocks nobody, and comes back when a larger node is reported.
        """
        sizes = largest_nodes(nodes)
        write_largest_nodes(self._database, sizes)
        holds = sa.or_(sa.false(), *[(runs.c.cpus <= node.cpus) & (runs.c.gpus <= node.gpus) for node in sizes])
        wrong = is_claimable & (runs.c.schedulable != holds)
        with self._database.reading() as connection:
            requests = connection.execute(sa.select(runs.c.cpus, runs.c.gpus).where(wrong).distinct()).all()
        if not requests:
            return
        with self._database.writing() as connection:
            for cpus, gpus in requests:
                reason = shortfall(cpus, gpus, sizes)
                query = sa.update(runs).where(wrong, runs.c.cpus == cpus, runs.c.gpus == gpus)
                connection.execute(query.values(schedulable=reason is None, reason=reason, version=runs.c.version + 1))
            count_change(connection)

    def _finds_any(self, query: sa.Select[Any]) -> bool:
        """Return whether `query` finds a row: a look that takes no lock, since most looks find nothing."""
        with self._database.reading() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def _lease(
        self, connection: Connection, fitting: Sequence[tuple[RunRow, NodeId]], now: float
    ) -> tuple[tuple[Lease, NodeId], ...]:
        """Move the runs to LEASED, each with a new attempt and a new secret; those that would be refused today wait."""
        checked_specs = trainable_specs(connection, [run.id for run, _ in fitting])
        specs = {id: spec for id, spec in checked_specs.items() if isinstance(spec, RunSpec)}
        refused = {id: error for id, error in checked_specs.items() if isinstance(error, ValidationError)}
        damaged = {id: error for id, error in checked_specs.items() if isinstance(error, DamagedError)}
        _postpone(connection, refused, now)
        failed = []  # nobody can ever train them: they fail alone, and the others go on
        for run in (run for run, _ in fitting if run.id in damaged):
            look = "`adapm-bench db check` looks for more, and a backup may still have it"
            reason = f"its specification {damaged[run.id]}; {look}"
            failed.append((run, replace(run, status=RunStatus.FAILED, reason=reason, failures=run.failures + 1)))
        move(connection, failed, now)
        fitting = [(run, node) for run, node in fitting if run.id in specs]
        if not fitting:
            if refused:
                count_change(connection)  # else `move` does it, once a transaction
            return ()
        waiting = [run for run, _ in fitting]
        leased = [replace(run, status=RunStatus.LEASED, attempt=run.attempt + 1, reason=None) for run in waiting]
        tokens = [Token(secrets.token_urlsafe(TOKEN_BYTES)) for _ in leased]
        charged = quotas.keys_of(connection, leased)
        rows = [
            {
                "run_id": run.id,
                "attempt": run.attempt,
                "token_hash": token_hash(token),
                "node": node,
                "leased_at": now,
                "expires_at": now + self._policy.start_seconds,
                "key_id": charged[run.experiment_id],
            }
            for run, token, (_, node) in zip(leased, tokens, fitting, strict=True)
        ]
        connection.execute(_INSERT_ATTEMPT, rows)
        move(connection, zip(waiting, leased, strict=True), now)
        return tuple(
            (
                Lease(
                    run_id=run.id,
                    attempt=run.attempt,
                    token=token,
                    spec=specs[run.id],
                ),
                node,
            )
            for run, token, (_, node) in zip(leased, tokens, fitting, strict=True)
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
        after: RunRow | None = None,
    ) -> None:
        """End the live attempts without a result and send their runs where they belong, or the only one to `after`.

        Until now, but no longer than `held`, an attempt kept its device: after the service's own absence its last
        sign of life is all that is known.
        """
        live = list(live)
        if not live:
            return
        moments = _attempt_times(connection, live, held)
        ends = []
        for run in live:
            started, until = moments[run.id]
            seconds = None if started is None else run.processes * max(min(now, until or now) - started, 0.0)
            message = f"{reason}; {run.reason}" if run.limit_reached else reason
            ends.append(AttemptEnd(run=run, outcome=outcome, message=message, device_seconds=seconds))
        charged = end_attempts(connection, ends, now)
        moved = [
            status_after_loss(run, outcome, reason, self._policy, now)
            if after is None
            else replace(after, device_seconds=run.device_seconds)
            for run in charged
        ]
        move(connection, zip(live, moved, strict=True), now)

    def _shorten_leases(self) -> None:
        """Let no lease last longer than one that is given now: it was given before the clock stepped back, and its
        worker, if there still is one, renews it within a part of that."""
        longest = max(self._policy.start_seconds, self._policy.ttl_seconds)
        latest = self._database.now() + longest
        query = sa.select(attempts.c.run_id).where(attempts.c.ended_at.is_(None), attempts.c.expires_at > latest)
        with self._database.reading() as connection:
            if (row := connection.execute(query.limit(1)).first()) is None:
                return
        log.warning("the database's clock has stepped back; leases last from now", run=row.run_id)
        with self._database.writing() as connection:
            too_long = sa.update(attempts).where(attempts.c.ended_at.is_(None), attempts.c.expires_at > latest)
            connection.execute(too_long.values(expires_at=latest))


def _postpone(connection: Connection, refused: dict[RunId, ValidationError], now: float) -> None:
    """Let locked runs wait that nobody could train now: an own optimizer that is missing may be allowed again."""
    for run_id, error in refused.items():
        reason = f"cannot be trained by this service: {first_fault(error)}; allow that again, or cancel it"
        values = {
            "available_at": now + REFUSED_SECONDS,
            "reason": plain_text(reason),
            "version": runs.c.version + 1,
        }
        connection.execute(sa.update(runs).where(runs.c.id == run_id).values(values))


def _lost_nodes_in_a_row(connection: Connection, run: RunRow, message: str) -> int:
    """Return the number of consecutive attempts before the newest one that ended with the same message."""
    is_earlier = (attempts.c.run_id == run.id) & (attempts.c.attempt < run.attempt)
    query = sa.select(attempts.c.outcome, attempts.c.message).where(is_earlier).order_by(attempts.c.attempt.desc())
    rows = connection.execute(query.limit(MOST_NODES_LOST)).all()
    return len(list(takewhile(lambda row: row == (AttemptOutcome.INTERRUPTED, message), rows)))


def _attempt_times(
    connection: Connection, live: Sequence[RunRow], until: str
) -> dict[RunId, tuple[float | None, float | None]]:
    """Return for each run's live attempt its start, and the moment in the column `until`."""
    query = sa.select(attempts.c.run_id, attempts.c.started_at, attempts.c[until])
    rows = connection.execute(
        query.where(attempts.c.run_id.in_([run.id for run in live]), attempts.c.ended_at.is_(None))
    )
    return {RunId(run_id): (started, moment) for run_id, started, moment in rows}


_INSERT_ATTEMPT = sa.insert(attempts)


# The largest machines of the cluster: told by the dispatcher beside its lease, read by whoever checks a request.


def write_largest_nodes(database: Database, sizes: Sequence[Node]) -> None:
    """Keep the largest nodes for other processes; writes nothing if they are known, and where nobody leads."""
    nodes_json, leads = json.dumps([asdict(node) for node in sizes]), leaders.c.role == DISPATCHER
    query = sa.select(leaders.c.role).where(leads, leaders.c.nodes.is_distinct_from(nodes_json))
    with database.reading() as connection:
        if connection.execute(query).first() is None:
            return
    with database.writing(durable=False) as connection:
        connection.execute(sa.update(leaders).where(leads).values(nodes=nodes_json))


def read_largest_nodes(database: Database, connection: Connection) -> tuple[Node, ...]:
    """Return the largest nodes, as the dispatcher has seen them; none while nobody dispatches."""
    leads = (leaders.c.role == DISPATCHER) & (leaders.c.expires_at > database.read_clock(connection))
    nodes_json = connection.execute(sa.select(leaders.c.nodes).where(leads)).scalar_one_or_none()
    with suppress(DamagedError):  # the dispatcher tells them again
        return tuple(integrity.stored(tuple[Node, ...], nodes_json or "[]"))
    return ()
