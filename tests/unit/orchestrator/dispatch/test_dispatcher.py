"""The dispatcher on a real queue in SQLite, with a runner that starts nothing and tells what the test wants told; and
its look at the disk."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.dispatch import dispatcher as dispatching
from orchestrator.dispatch.disk import shortage
from orchestrator.dispatch.dispatcher import Dispatcher, EndedAttempt
from orchestrator.errors import StoreError
from orchestrator.jobs import AttemptOutcome, Lease, LeasePolicy, LiveAttempt, RunAction, RunId, RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store import leadership
from orchestrator.store.database import Database
from orchestrator.store.leadership import LEADER_TTL_SECONDS, LeaderLoop, Leadership, LostLeadershipError
from orchestrator.store.queue.capacity import Node, NodeId
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import result
from worker.spec.run import Budget, Resources, Workload


class TableRunner:
    """A runner of a given size whose attempts end when the test says so."""

    def __init__(self, cpus: int, gpus: int = 0) -> None:
        self.size = (Node(id=NodeId("here"), cpus=cpus, gpus=gpus),)
        self.survivors: set[RunId] = set()
        """Runs whose processes outlive their dispatcher."""
        self.running: dict[RunId, Lease] = {}
        self.killed: list[tuple[RunId, int]] = []
        self._ended: list[EndedAttempt] = []

    def nodes(self) -> Sequence[Node]:
        return self.size

    def start(self, lease: Lease, node: NodeId) -> None:
        assert node == "here"
        self.running[lease.run_id] = lease

    def adopt(self, live: Sequence[LiveAttempt]) -> Sequence[LiveAttempt]:
        return [attempt for attempt in live if attempt.run_id in self.survivors]

    def collect_ended(self) -> Sequence[EndedAttempt]:
        attempts, self._ended = self._ended, []
        return attempts

    def kill(self, run_id: RunId, attempt: int) -> None:
        self.running.pop(run_id, None)
        self.killed.append((run_id, attempt))

    def close(self, grace_seconds: float) -> Sequence[EndedAttempt]:
        return [
            EndedAttempt(run_id=lease.run_id, attempt=lease.attempt, interrupted=True, message="closed")
            for lease in self.running.values()
        ]

    def dies(self, run_id: RunId, *, out_of_memory: bool = False) -> None:
        attempt = self.running.pop(run_id).attempt
        ended = EndedAttempt(run_id=run_id, attempt=attempt, interrupted=False, message="killed by the test")
        self._ended.append(replace(ended, out_of_memory=out_of_memory))


class Desk:
    """Services, their queue and a dispatcher over one runner."""

    def __init__(self, folder: Path, runner: TableRunner, policy: LeasePolicy) -> None:
        self.database = database = Database(f"sqlite:///{folder / 'bench.sqlite3'}")
        database.migrate()
        self.services = make_services(database, folder, policy)
        self.queue = Queue(database, policy)
        self.runner = runner
        self.dispatcher = self.new_dispatcher()

    def new_dispatcher(
        self,
        holder: str = "the only one",
        answers: Callable[[], bool] = lambda: True,
        runner: TableRunner | None = None,
        dispatch_blocker: Callable[[], str | None] = lambda: None,
    ) -> LeaderLoop:
        return LeaderLoop(
            Dispatcher(
                self.queue,
                runner or self.runner,
                Leadership(self.database, holder, renew_seconds=0.0),
                answers,
                dispatch_blocker,
                FollowUps(self.database).follow,
            )
        )

    def submit(
        self,
        seeds: int = 1,
        resources: Resources | None = None,
        deadline_seconds: float | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.services.experiments.submit(
            ComparisonSpec(
                name="dispatch",
                workload=Workload(model="gpt2-tiny", budget=Budget(steps=5)),
                candidates=(Candidate(optimizer="adamw", learning_rates=(1e-3,)),),
                seeds=tuple(range(seeds)),
                resources=resources or Resources(),
                deadline_seconds=deadline_seconds,
                tuning=tuning,
            )
        )

    def pass_a_lease(self, dispatcher: LeaderLoop) -> None:
        """Let more than a lease's time go by; the dispatcher goes on, but the worker is not heard of."""
        for _ in range(2):
            self.database.clock_offset_seconds += 0.6 * LeasePolicy().ttl_seconds
            dispatcher.tick()

    def statuses(self) -> list[RunStatus]:
        return [run.status for run in self.services.runs.page()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two CPUs; the dispatcher reaps at every tick."""
    monkeypatch.setattr(dispatching, "REAP_SECONDS", 0.0)
    return Desk(tmp_path, TableRunner(cpus=2), LeasePolicy(backoff_seconds=0.0, cancel_grace_seconds=0.0))


def test_the_leader_queues_what_follows_and_starts_it_in_the_same_round(desk: Desk) -> None:
    """A standby queues nothing; a run's end alone adds no run."""
    standby = desk.new_dispatcher("another")
    desk.submit(tuning=Tuning(method="grid", seeds=(7, 8)))
    desk.dispatcher.tick()
    for run_id, lease in [*desk.runner.running.items()]:
        desk.services.attempts.hello(run_id, lease.attempt, lease.token)
        desk.services.attempts.finish(run_id, lease.attempt, lease.token, result())
        desk.runner.dies(run_id)
    standby.tick()
    assert desk.statuses() == [RunStatus.SUCCEEDED] * 2
    desk.dispatcher.tick()
    assert desk.statuses() == [RunStatus.SUCCEEDED] * 2 + [RunStatus.LEASED]


def test_a_dead_process_frees_its_place_and_its_run_is_tried_again(desk: Desk) -> None:
    """The run of a process that died is leased again, as attempt 2."""
    desk.submit()
    desk.dispatcher.tick()
    (run,) = desk.services.runs.page()
    desk.runner.dies(RunId(run.id))
    desk.dispatcher.tick()
    desk.dispatcher.tick()
    assert desk.runner.running[RunId(run.id)].attempt == 2
    assert [attempt.message for attempt in desk.services.runs.attempts(run.id)] == ["killed by the test", None]


def test_a_worker_that_ignores_a_cancel_is_ended(desk: Desk) -> None:
    """After the grace time the process is killed and the run is cancelled."""
    desk.submit()
    desk.dispatcher.tick()
    (run,) = desk.services.runs.page()
    desk.services.runs.apply(run.id, RunAction.CANCEL)
    desk.dispatcher.tick()
    assert desk.runner.killed == [(run.id, 1)]
    assert desk.statuses() == [RunStatus.CANCELLED]


def test_a_run_larger_than_the_cluster_says_so_and_blocks_nobody(desk: Desk) -> None:
    """A run that needs 8 CPUs of 2 shows why it waits; the run behind it is started."""
    desk.submit(resources=Resources(cpus=8))
    desk.submit()
    desk.dispatcher.tick()
    waiting = [run for run in desk.services.runs.page() if run.status is RunStatus.QUEUED]
    reason = "needs 8 CPUs and 0 GPUs on one node; the largest node of the cluster has 2 CPUs and 0 GPUs"
    assert [run.reason for run in waiting] == [reason]
    assert len(desk.runner.running) == 1


def test_closing_gives_every_run_back_without_blame(desk: Desk) -> None:
    """Runs of a stopped service wait in the queue, however often that happens."""
    desk.submit(seeds=2)
    for _ in range(5):
        dispatcher = desk.new_dispatcher()
        dispatcher.tick()
        dispatcher.close()
        assert desk.statuses() == [RunStatus.QUEUED, RunStatus.QUEUED]


def test_recovery_restarts_what_a_killed_service_left(desk: Desk) -> None:
    """A new dispatcher leases at once what the killed one held; the old lease opens nothing any more."""
    desk.submit()
    desk.dispatcher.tick()
    (zombie,) = desk.runner.running.values()
    successor = desk.new_dispatcher()
    successor.tick()
    (lease,) = desk.runner.running.values()
    assert (zombie.attempt, lease.attempt) == (1, 2)
    assert not desk.queue.release(zombie.run_id, zombie.attempt, AttemptOutcome.LOST, "late")


def test_a_worker_that_falls_silent_is_ended_and_its_place_is_used(desk: Desk) -> None:
    """A process that hangs is killed when its lease runs out, and its run goes on elsewhere."""
    desk.submit()
    desk.dispatcher.tick()
    (hung,) = desk.runner.running.values()
    desk.services.attempts.hello(hung.run_id, 1, hung.token)
    desk.pass_a_lease(desk.dispatcher)
    assert desk.runner.killed == [(hung.run_id, 1)]
    desk.dispatcher.tick()
    assert desk.runner.running[hung.run_id].attempt == 2


def test_while_the_service_is_away_silence_is_no_reason(desk: Desk) -> None:
    """Workers that can reach nobody keep their leases; once the service is back they get the time to be heard."""
    desk.submit()
    answers = False
    dispatcher = desk.new_dispatcher(answers=lambda: answers)
    dispatcher.tick()
    (worker,) = desk.runner.running.values()
    desk.services.attempts.hello(worker.run_id, 1, worker.token)
    desk.pass_a_lease(dispatcher)
    answers = True
    dispatcher.tick()
    assert desk.statuses() == [RunStatus.RUNNING]
    assert desk.runner.killed == []


def test_what_ended_while_the_database_was_away_is_told_later(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes die, the first release fails: both places are free and both runs come back."""
    desk.submit(seeds=2)
    desk.dispatcher.tick()
    for run_id in list(desk.runner.running):
        desk.runner.dies(run_id)
    with monkeypatch.context() as patch:
        patch.setattr(desk.queue, "release", _database_away)
        with pytest.raises(StoreError):
            desk.dispatcher.tick()
    desk.dispatcher.tick()
    desk.dispatcher.tick()
    assert sorted(lease.attempt for lease in desk.runner.running.values()) == [2, 2]


def test_a_run_that_the_host_had_no_memory_for_goes_on_with_half_the_micro_batch(desk: Desk) -> None:
    desk.submit(seeds=1)
    desk.dispatcher.tick()
    (run_id,) = desk.runner.running
    desk.runner.dies(run_id, out_of_memory=True)
    desk.dispatcher.tick()
    run = desk.services.runs.get(run_id)
    assert (run.attempt, run.micro_batch_sequences) == (2, 4)


def test_the_dispatcher_stops_what_is_over_its_deadline(desk: Desk) -> None:
    desk.submit(seeds=2, deadline_seconds=10.0)
    desk.dispatcher.tick()
    desk.database.clock_offset_seconds += 11
    desk.dispatcher.tick()
    assert desk.statuses() == [RunStatus.CANCELLED] * 2, "at once: the policy of these tests has no grace time"
    assert len(desk.runner.killed) == 2


def test_what_outlived_a_dispatcher_is_adopted_with_the_place_that_it_occupies(desk: Desk) -> None:
    """Of two attempts one has survived: it keeps its lease and its CPU, the other run is started again beside it."""
    desk.submit(seeds=3)
    desk.dispatcher.tick()
    survivor, lost = desk.runner.running
    desk.runner.survivors = {survivor}
    successor = desk.new_dispatcher()
    successor.tick()
    assert [desk.services.runs.get(run_id).attempt for run_id in (survivor, lost)] == [1, 2]
    assert sorted(desk.statuses()) == ["leased", "leased", "queued"]
    desk.runner.dies(survivor)
    successor.tick()
    assert [attempt.message for attempt in desk.services.runs.attempts(survivor)][:1] == ["killed by the test"]


def test_a_standby_starts_and_ends_nothing_until_the_leader_is_gone(
    desk: Desk,
) -> None:
    desk.submit()
    desk.dispatcher.tick()
    standby = desk.new_dispatcher("another", runner=TableRunner(cpus=2))
    standby.tick()
    assert [(run.status, run.attempt) for run in desk.services.runs.page()] == [("leased", 1)]
    desk.dispatcher.close()
    standby.tick()
    desk.dispatcher.tick()
    assert [(run.status, run.attempt) for run in desk.services.runs.page()] == [("leased", 2)]


def test_a_leader_that_was_away_for_too_long_steps_back(desk: Desk) -> None:
    """It ends what it had started itself, and nothing that its successor has started."""
    desk.submit()
    desk.dispatcher.tick()
    desk.database.clock_offset_seconds += 2 * LEADER_TTL_SECONDS
    successor = desk.new_dispatcher("another", runner=TableRunner(cpus=2))
    successor.tick()
    desk.dispatcher.tick()
    assert [(run.status, run.attempt) for run in desk.services.runs.page()] == [("leased", 2)]
    assert [attempt.message for attempt in desk.services.runs.attempts(desk.services.runs.page()[0].id)][1:] == [None]


def test_a_leader_that_loses_its_lease_in_the_middle_of_a_round_begins_nothing(desk: Desk) -> None:
    """Its look at the service takes so long that another one leads meanwhile, and has started one of three runs."""
    successor = desk.new_dispatcher("another", runner=TableRunner(cpus=1))
    late: list[bool] = []

    def answers_late() -> bool:
        if late:
            desk.database.clock_offset_seconds += 2 * LEADER_TTL_SECONDS
            successor.tick()
        return True

    slow = desk.new_dispatcher("slow", answers=answers_late)
    slow.tick()
    desk.submit(seeds=3)
    late.append(True)
    with pytest.raises(LostLeadershipError):
        slow.tick()
    slow.tick()
    assert desk.runner.running == {}
    assert sorted(desk.statuses()) == ["leased", "queued", "queued"]


def _database_away(*_: object, **__: object) -> bool:
    raise StoreError("the database is away")


def test_while_something_hinders_it_nothing_is_begun_and_what_runs_is_settled(desk: Desk) -> None:
    reason: list[str] = []
    dispatcher = desk.new_dispatcher(dispatch_blocker=lambda: reason[0] if reason else None)
    desk.submit(seeds=2)
    desk.runner.size = (Node(id=NodeId("here"), cpus=1, gpus=0),)
    dispatcher.tick()
    (first,) = desk.runner.running
    reason.append("the disk is full")
    desk.runner.size = (Node(id=NodeId("here"), cpus=2, gpus=0),)
    desk.runner.dies(first)
    dispatcher.tick()
    assert desk.runner.running == {}
    assert {run.status for run in desk.services.runs.page()} == {RunStatus.RETRY_WAIT, RunStatus.QUEUED}
    reason.clear()
    dispatcher.tick()
    assert desk.runner.running


def test_what_one_round_cannot_start_the_next_one_starts_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster with a long queue is filled without a pause between the rounds."""
    monkeypatch.setattr(dispatching, "MOST_CLAIMS", 2)
    desk.runner.size = (Node(id=NodeId("here"), cpus=5, gpus=0),)
    desk.submit(seeds=9)
    assert [desk.dispatcher.tick() for _ in range(3)] == [0.0, 0.0, dispatching.TICK_SECONDS]
    assert len(desk.runner.running) == 5


def test_a_round_that_goes_wrong_does_not_end_the_service(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a tick raises, the next one comes."""
    monkeypatch.setattr(leadership, "FAULT_SECONDS", 0.0)
    stop, ticks = threading.Event(), []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 1:
            raise ValueError("a specification that nobody foresaw")
        stop.set()

    monkeypatch.setattr(desk.dispatcher, "tick", tick)
    desk.dispatcher.run(stop)
    assert len(ticks) == 2


def test_a_full_disk_is_told_with_a_way_out(tmp_path: Path) -> None:
    reason = shortage(tmp_path, 10**18)
    assert reason is not None
    assert f"the disk of {tmp_path} has" in reason
    assert "ADAPM_BENCH_FREE_BYTES" in reason


def test_an_empty_disk_is_no_hindrance(tmp_path: Path) -> None:
    assert shortage(tmp_path, 1) is None


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert (
        shortage(tmp_path / "none", 1)
        == f"the data folder {tmp_path / 'none'} cannot be looked at: No such file or directory"
    )
