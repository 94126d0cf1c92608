"""The queue against a simple model: random submits, claims, deaths, zombies and clocks must never break an invariant.

The model is a dictionary of runs; the invariants are those of the queue's promise: success absorbs, the other terminal
states are left by a retry alone, experiments take turns and the urgent go first, at most one live lease a run, attempts
rise by one, one result ⇔ succeeded, stale tokens change nothing, no event is missing, every attempt's device time
counts, and no key has more at work than its quota, nor begins anything once its device-hours are used up.
"""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from orchestrator.errors import ConflictError, LeaseLostError
from orchestrator.jobs import (
    CLAIMABLE,
    LIVE,
    MOVES,
    TERMINAL,
    AttemptOutcome,
    Lease,
    LeasePolicy,
    RunAction,
    RunId,
    RunStatus,
    Token,
)
from orchestrator.keys import KeyRequest
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from orchestrator.store.tables import attempts, events, outbox, results, runs
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, claim, comparison_spec, result, sqlite_database
from worker.records.protocol import Command, Failure, FailureKind, Heartbeat, Stopped

# One tick (7 s) is longer than any retry's pause (at most 2 · 2 · 1.5 s), four are inside the TTL and five beyond it:
# the model can tell what is due without knowing the jitter.
POLICY = LeasePolicy(ttl_seconds=30, start_seconds=60, max_failures=3, backoff_seconds=2)
TICK_SECONDS = 7.0
TTL_TICKS = 5
START_TICKS = 9
ROOM_TICKS = 5


UNDER_WAY = CLAIMABLE | {RunStatus.LEASED, RunStatus.RUNNING}
GRANTED = {
    RunAction.CANCEL: frozenset(RunStatus) - {RunStatus.SUCCEEDED, RunStatus.FAILED},
    RunAction.PAUSE: UNDER_WAY | {RunStatus.PAUSING, RunStatus.PAUSED},
    RunAction.RESUME: UNDER_WAY | {RunStatus.PAUSING, RunStatus.PAUSED},
    RunAction.RETRY: UNDER_WAY | {RunStatus.FAILED, RunStatus.CANCELLED},
}


QUOTAS = {"at most one": KeyRequest(label="at most one", runs_at_once=1)}
QUOTAS |= {"a minute": KeyRequest(label="a minute", runs_at_once=2, device_hours_a_day=60 / 3600)}
"""Both are reached and left again in a few steps; no example lasts a day."""


@dataclass
class ModelRun:
    """The expected state of a run."""

    status: RunStatus = RunStatus.QUEUED
    attempt: int = 0
    failures: int = 0
    due_tick: int = 0
    expiry_tick: int = 0
    device_seconds: dict[int, float] = field(default_factory=dict)
    order: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Rank, turn, number of the experiment, position."""
    started: bool = False
    """Whether the newest attempt has said hello."""
    paused_attempts: set[int] = field(default_factory=set)
    """Attempts that were asked to pause."""
    micro_batch: int = 8
    """Half of it each time that memory runs out; it never grows again."""
    deadline_tick: int | None = None
    """The tick of its experiment's deadline."""
    ended: int = 0
    """The number of its ends."""
    owner: str | None = None
    """The label of the key that submitted it."""

    def live(self, lease: Lease) -> bool:
        return self.status in LIVE and self.attempt == lease.attempt

    def lose(self, tick: int, *, counts: bool) -> None:
        """The attempt is over without a result."""
        if self.status is RunStatus.CANCELLING:
            self.end(RunStatus.CANCELLED)
        elif self.status is RunStatus.PAUSING:
            self.status = RunStatus.PAUSED
        elif not counts:
            self.status = RunStatus.QUEUED
        else:
            self.failures += 1
            if self.failures == POLICY.max_failures:
                self.end(RunStatus.FAILED)
            else:
                self.status, self.due_tick = RunStatus.RETRY_WAIT, tick + 1

    def halve(self, tick: int) -> bool:
        """Go on with half the micro-batch, which is not held against it; False if that is no way."""
        if self.micro_batch == 1 or self.status not in (RunStatus.LEASED, RunStatus.RUNNING):
            return False
        self.micro_batch //= 2
        self.status, self.due_tick = RunStatus.RETRY_WAIT, tick
        return True

    def end(self, status: RunStatus) -> None:
        """The run is over, at least until a retry."""
        self.status, self.ended = status, self.ended + 1


class QueueMachine(RuleBasedStateMachine):
    """Rules are what users, dispatchers and workers do; `open_database` is set by the test."""

    open_database: ClassVar[Callable[[ExitStack], Database]]
    leases: Bundle[Lease] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.database = type(self).open_database(self.stack)
        self.moment = 1e9
        # Time stands still between ticks, however busy the machine is that runs this.
        clock = sa.bindparam("clock", callable_=lambda: self.moment, type_=sa.Double, unique=True)
        self.database._now, self.database._clock = clock, sa.select(clock)
        self.services = make_services(self.database, policy=POLICY)
        self.queue = Queue(self.database, POLICY)
        self.model: dict[str, ModelRun] = {}
        self.owners = {label: self.services.keyring.create(request).key.id for label, request in QUOTAS.items()}
        self.keys: dict[str, str] = {}
        self.experiments = 0
        self.tick = 0
        for _ in range(TTL_TICKS + 1):  # the grace after a start
            self.advance()
        self.version = self.services.monitor.version()

    def teardown(self) -> None:
        self.stack.close()

    @rule(
        seeds=st.integers(1, 3),
        priority=st.sampled_from([0, 0, 5]),
        key=st.sampled_from([None, "a", "b"]),
        owner=st.sampled_from([None, None, *QUOTAS]),
        deadline_ticks=st.sampled_from([None, None, 4]),
    )
    def submit(self, seeds: int, priority: int, key: str | None, owner: str | None, deadline_ticks: int | None) -> None:
        key = key and f"{key}{seeds}{priority}{deadline_ticks}"
        # Half a tick before: whether it has passed is not a matter of the time that the test itself takes.
        seconds = None if deadline_ticks is None else (deadline_ticks - 0.5) * TICK_SECONDS
        spec = comparison_spec(seeds=range(seeds))
        spec = spec.model_copy(update={"priority": priority, "deadline_seconds": seconds})
        turn = self.served(-priority)
        submission = self.services.experiments.submit(spec, key, by=owner and self.owners[owner])
        assert submission.created == (key not in self.keys)
        if key is not None:
            assert self.keys.setdefault(key, submission.experiment.id) == submission.experiment.id
        if submission.created:
            self.experiments += 1
            for run in self.services.runs.page(experiment_id=submission.experiment.id):
                order = (-priority, turn + run.position, self.experiments, run.position)
                late = None if deadline_ticks is None else self.tick + deadline_ticks
                self.model[run.id] = ModelRun(order=order, owner=owner, deadline_tick=late)

    def served(self, rank: int) -> int:
        """The turn that a newcomer gets: that of the first run waiting for its first attempt, else behind all."""
        runs = [run for run in self.model.values() if run.order[0] == rank]
        fresh = [run.order[1] for run in runs if run.attempt == 0 and run.status is RunStatus.QUEUED]
        return min(fresh, default=max((run.order[1] for run in runs), default=-1) + 1)

    def runs_left(self, owner: str) -> int:
        """Return how many runs of a key may begin: the use of its attempts is the store's word, which has its own
        rule."""
        run_ids = [id for id, run in self.model.items() if run.owner == owner]
        at_work = sum(self.model[id].status in LIVE for id in run_ids)
        seconds = sum(self.services.runs.get(id).device_seconds for id in run_ids)
        quota = QUOTAS[owner]
        assert quota.runs_at_once is not None
        used_up = quota.device_hours_a_day is not None and seconds / 3600 >= quota.device_hours_a_day
        return 0 if used_up else quota.runs_at_once - at_work

    @rule(target=leases, limit=st.integers(1, 4))
    def claim(self, limit: int) -> MultipleResults[Lease]:
        due = [id for id, run in self.model.items() if run.status in CLAIMABLE and run.due_tick <= self.tick]
        due.sort(key=lambda id: self.model[id].order)
        allowances = {owner: self.runs_left(owner) for owner in QUOTAS}
        allowed = []
        for id in due:
            owner = self.model[id].owner
            if owner is None or allowances[owner] > 0:
                allowed.append(id)
                allowances |= {} if owner is None else {owner: allowances[owner] - 1}
        claimed = claim(self.queue, cpus=99, limit=limit)
        assert [lease.run_id for lease in claimed] == allowed[:limit], "the most urgent first, then in turns"
        for lease in claimed:
            run = self.model[lease.run_id]
            run.status, run.attempt, run.started = RunStatus.LEASED, run.attempt + 1, False
            run.expiry_tick = self.tick + START_TICKS
            run.device_seconds[run.attempt] = 0.0
            assert lease.attempt == run.attempt
        return multiple(*claimed)

    @rule(lease=leases)
    def hello(self, lease: Lease) -> None:
        run = self.model[lease.run_id]
        if self.accepted(run.live(lease), lambda: self.services.attempts.hello(*identity(lease))) and not run.started:
            run.started, run.expiry_tick = True, self.tick + TTL_TICKS
            if run.status is RunStatus.LEASED:
                run.status = RunStatus.RUNNING

    @rule(lease=leases, seconds=st.floats(0, 50))
    def heartbeat(self, lease: Lease, seconds: float) -> None:
        run = self.model[lease.run_id]
        beat = Heartbeat(step=1, device_seconds=seconds)
        if self.accepted(run.live(lease), lambda: self.services.attempts.heartbeat(*identity(lease), beat)):
            run.expiry_tick = self.tick + TTL_TICKS
            self.held(run, seconds)

    @rule(lease=leases, seconds=st.floats(0, 50))
    def finish(self, lease: Lease, seconds: float) -> None:
        run = self.model[lease.run_id]
        repeated = self.ended_as(lease, AttemptOutcome.SUCCEEDED)
        allowed = run.live(lease) and run.status is not RunStatus.LEASED
        report = result(device_seconds=seconds)
        if (
            self.accepted(allowed or repeated, lambda: self.services.attempts.finish(*identity(lease), report))
            and allowed
        ):
            run.end(RunStatus.SUCCEEDED)
            self.held(run, seconds)

    @rule(lease=leases, kind=st.sampled_from(FailureKind), seconds=st.floats(0, 50))
    def fail(self, lease: Lease, kind: FailureKind, seconds: float) -> None:
        run = self.model[lease.run_id]
        interrupted = kind is FailureKind.INTERRUPTED
        outcome = AttemptOutcome.INTERRUPTED if interrupted else AttemptOutcome.BROKEN
        live, repeated = run.live(lease), self.ended_as(lease, outcome)
        failure = Failure(kind=kind, message="broken", device_seconds=seconds)
        if self.accepted(live or repeated, lambda: self.services.attempts.finish(*identity(lease), failure)) and live:
            self.held(run, seconds)
            if kind is FailureKind.OUT_OF_MEMORY and run.halve(self.tick):
                return
            if kind is FailureKind.PROGRAM and run.status is not RunStatus.CANCELLING:
                run.failures += 1
                run.end(RunStatus.FAILED)
            elif kind is FailureKind.STORAGE_FULL:
                run.lose(self.tick, counts=False)
                run.due_tick = self.tick + ROOM_TICKS
            else:
                run.lose(self.tick, counts=not interrupted)

    @rule(lease=leases, command=st.sampled_from([Command.CANCEL, Command.PAUSE]))
    def stop(self, lease: Lease, command: Command) -> None:
        run = self.model[lease.run_id]
        repeated = self.ended_as(lease, AttemptOutcome.STOPPED)
        withdrawn = command is Command.PAUSE and run.attempt in run.paused_attempts
        is_stopping = run.status in (RunStatus.CANCELLING, RunStatus.PAUSING)
        allowed = run.live(lease) and (is_stopping or withdrawn)
        stopped = Stopped(command=command, step=1, device_seconds=0)
        if (
            self.accepted(allowed or repeated, lambda: self.services.attempts.finish(*identity(lease), stopped))
            and allowed
        ):
            run.lose(self.tick, counts=False)

    @rule(
        lease=leases,
        outcome=st.sampled_from([AttemptOutcome.LOST, AttemptOutcome.INTERRUPTED]),
        memory=st.sampled_from([False, False, True]),
    )
    def release(self, lease: Lease, outcome: AttemptOutcome, memory: bool) -> None:
        run = self.model[lease.run_id]
        live = run.live(lease)
        died = self.queue.release(lease.run_id, lease.attempt, outcome, "the process died", out_of_memory=memory)
        assert died == live
        if live and not (memory and run.halve(self.tick)):
            run.lose(self.tick, counts=outcome is AttemptOutcome.LOST)

    @rule(choice=st.integers(0, 99), action=st.sampled_from(RunAction))
    def apply(self, choice: int, action: RunAction) -> None:
        if not self.model:
            return
        run_id, run = list(self.model.items())[choice % len(self.model)]
        if run.status not in GRANTED[action]:
            with pytest.raises(ConflictError):
                self.services.runs.apply(run_id, action)
            return
        self.services.runs.apply(run_id, action)
        self.grant(run, action)

    def grant(self, run: ModelRun, action: RunAction) -> None:
        """Change a run whose state allows the action."""
        live, waits = run.status in LIVE, run.status in CLAIMABLE
        if action is RunAction.CANCEL and live:
            run.status = RunStatus.CANCELLING
        elif action is RunAction.CANCEL and run.status is not RunStatus.CANCELLED:
            run.end(RunStatus.CANCELLED)
        elif action is RunAction.PAUSE and live:
            run.status = RunStatus.PAUSING
            run.paused_attempts.add(run.attempt)
        elif action is RunAction.PAUSE and waits:
            run.status = RunStatus.PAUSED
        elif action is RunAction.RESUME and run.status is RunStatus.PAUSED:
            run.status, run.due_tick = RunStatus.QUEUED, self.tick
        elif action is RunAction.RESUME and run.status is RunStatus.PAUSING:
            run.status = RunStatus.RUNNING if run.started else RunStatus.LEASED
        elif action is RunAction.RETRY and run.status in TERMINAL:
            run.status, run.due_tick = RunStatus.QUEUED, self.tick
            run.failures = min(run.failures, POLICY.max_failures - 1)
            if run.deadline_tick is not None and run.deadline_tick <= self.tick:
                run.deadline_tick = None

    @rule()
    def stop_late(self) -> None:
        late = {
            id: run
            for id, run in self.model.items()
            if run.deadline_tick is not None and run.deadline_tick <= self.tick
            if run.status not in TERMINAL and run.status is not RunStatus.CANCELLING
        }
        assert {id for id, _ in self.queue.stop_late()} == late.keys()
        for run in late.values():
            self.grant(run, RunAction.CANCEL)

    @rule()
    def restart(self) -> None:
        live = [run for run in self.model.values() if run.status in LIVE]
        assert self.queue.interrupt_all() == len(live)
        for run in live:
            run.lose(self.tick, counts=False)

    @rule()
    def advance(self) -> None:
        self.moment += TICK_SECONDS
        self.tick += 1
        expired = [run for run in self.model.values() if run.status in LIVE and run.expiry_tick <= self.tick]
        assert len(self.queue.reap()) == len(expired)
        for run in expired:
            run.lose(self.tick, counts=True)

    @invariant()
    def no_key_has_more_at_work_than_its_quota(self) -> None:
        used = {key.label: key.runs_at_work for key in self.services.keyring.list_keys()}
        for owner, quota in QUOTAS.items():
            at_work = sum(run.owner == owner and run.status in LIVE for run in self.model.values())
            assert used[owner] == at_work
            assert quota.runs_at_once is not None and at_work <= quota.runs_at_once

    @invariant()
    def the_store_is_the_model(self) -> None:
        with self.database.reading() as connection:
            rows = {row.id: row for row in connection.execute(sa.select(runs))}
            tries = list(connection.execute(sa.select(attempts).order_by(attempts.c.run_id, attempts.c.attempt)))
            event_rows = list(connection.execute(sa.select(events).order_by(events.c.run_id, events.c.sequence)))
            recorded = [row.run_id for row in connection.execute(sa.select(results))]
            sent = [row.run_id for row in connection.execute(sa.select(outbox).where(outbox.c.run_id.is_not(None)))]
        assert rows.keys() == self.model.keys()
        for id, run in self.model.items():
            row = rows[id]
            attempt_rows = [attempt_row for attempt_row in tries if attempt_row.run_id == id]
            line = [event_row for event_row in event_rows if event_row.run_id == id]
            assert (row.status, row.attempt, row.failures) == (run.status, run.attempt, run.failures)
            assert (row.micro_batch_sequences or 8) == run.micro_batch
            assert row.device_seconds == pytest.approx(sum(attempt_row.device_seconds for attempt_row in attempt_rows))
            for attempt_row in attempt_rows:
                reported = run.device_seconds[attempt_row.attempt]
                held = (
                    attempt_row.ended_at - attempt_row.started_at
                    if attempt_row.ended_at and attempt_row.started_at
                    else 0.0
                )
                assert reported <= attempt_row.device_seconds <= max(reported, held)
            assert [attempt_row.attempt for attempt_row in attempt_rows] == list(range(1, run.attempt + 1))
            assert sum(attempt_row.ended_at is None for attempt_row in attempt_rows) == (run.status in LIVE)
            assert [event_row.sequence for event_row in line] == list(range(1, len(line) + 1))
            assert all(b.from_status is a.to_status and b.to_status in MOVES[a.to_status] for a, b in pairwise(line))
            assert line[-1].to_status is run.status
        assert sorted(recorded) == sorted(id for id, run in self.model.items() if run.status is RunStatus.SUCCEEDED)
        assert sorted(sent) == sorted(id for id, run in self.model.items() for _ in range(run.ended))

    def held(self, run: ModelRun, seconds: float) -> None:
        """A worker's report of its device time; the figure never falls."""
        run.device_seconds[run.attempt] = max(run.device_seconds[run.attempt], seconds)

    def ended_as(self, lease: Lease, outcome: AttemptOutcome) -> bool:
        """Whether this attempt has ended in that way, so that saying it again is a repetition."""
        records = [record for record in self.services.runs.attempts(lease.run_id) if record.attempt == lease.attempt]
        return records[0].outcome is outcome

    def accepted(self, expected: bool, call: Callable[[], object]) -> bool:
        """Make the call; it must be accepted or refused as expected."""
        if expected:
            call()
            return True
        with pytest.raises((LeaseLostError, ConflictError)):
            call()
        return False


def identity(lease: Lease) -> tuple[RunId, int, Token]:
    return lease.run_id, lease.attempt, lease.token


def explore(open_database: Callable[[ExitStack], Database], share: float) -> None:
    """Look at that share of the profile's examples: each is dozens of transactions."""
    machine = type("Machine", (QueueMachine,), {"open_database": staticmethod(open_database)})
    bounds = settings(
        max_examples=round(settings().max_examples * share),
        stateful_step_count=35,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounds)


def test_no_order_of_events_breaks_the_queue_on_sqlite(tmp_path: Path) -> None:
    with sqlite_database(tmp_path):  # the template of the copies
        pass
    (file,) = tmp_path.glob("*.sqlite3")

    def open_database(stack: ExitStack) -> Database:
        for old in tmp_path.glob("copy*"):
            old.unlink()
        database = Database(f"sqlite:///{shutil.copy(file, tmp_path / 'copy.sqlite3')}")
        stack.callback(database.close)
        return database

    explore(open_database, share=0.25)


@pytest.mark.postgres
def test_no_order_of_events_breaks_the_queue_on_postgresql(postgresql: PostgresqlServer) -> None:
    explore(lambda stack: stack.enter_context(postgresql.database()), share=0.12)
