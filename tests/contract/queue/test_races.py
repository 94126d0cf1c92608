"""Two at once: whoever comes second finds the truth of the first, on SQLite and PostgreSQL."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import LeaseLostError
from orchestrator.jobs import AttemptOutcome, LeasePolicy, RunAction, RunStatus
from orchestrator.store import tables
from orchestrator.store.queue.queue import Queue
from orchestrator.store.run_rows import lock, select_runs
from tests.architecture.tree import REPOSITORY
from tests.contract.conftest import POLICY, Store, open_store
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, claim, comparison_spec, result, sqlite_database
from worker.records.protocol import Command, Heartbeat, HeartbeatReply, PointsBatch
from worker.records.result import Point

ROUNDS = 12
"""Each race is run so often; every round must hold."""


def together(*calls: Callable[[], object]) -> list[object]:
    """Run the calls at the same moment in threads of their own; what each returned or raised."""
    barrier = threading.Barrier(len(calls))
    outcomes: list[object] = [None] * len(calls)

    def run(position: int, call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            outcomes[position] = call()
        except LeaseLostError as error:
            outcomes[position] = error

    threads = [threading.Thread(target=run, args=arguments) for arguments in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_of_a_reaper_and_a_finish_exactly_one_wins(store: Store) -> None:
    """The lease has expired and both arrive: either the result counts, or the worker is told that it is too late."""
    winners = set()
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
        lease = store.start()
        store.pass_time(POLICY.ttl_seconds - 1)
        store.database.clock_offset_seconds += 2
        reaped, finished = together(
            store.queue.reap, partial(store.attempts.finish, lease.run_id, 1, lease.token, result())
        )
        (run,) = store.runs.page(experiment_id=experiment.id)
        reaper_won = isinstance(finished, LeaseLostError)
        winners.add(reaper_won)
        assert bool(reaped) == reaper_won
        assert run.status is (RunStatus.RETRY_WAIT if reaper_won else RunStatus.SUCCEEDED)
        assert (run.result is None) == reaper_won
        assert len(store.runs.events(run.id)) == 4
        store.experiments.apply(experiment.id, RunAction.CANCEL)


def test_a_heartbeat_that_meets_the_reaper_keeps_the_lease_or_learns_that_it_is_lost(store: Store) -> None:
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
        lease = store.start()
        store.pass_time(POLICY.ttl_seconds - 1)
        store.database.clock_offset_seconds += 2
        reaped, beaten = together(
            store.queue.reap,
            partial(store.attempts.heartbeat, lease.run_id, 1, lease.token, Heartbeat(step=1)),
        )
        lost = isinstance(beaten, LeaseLostError)
        assert bool(reaped) == lost
        assert store.runs.get(lease.run_id).status is (RunStatus.RETRY_WAIT if lost else RunStatus.RUNNING)
        store.experiments.apply(experiment.id, RunAction.CANCEL)
        store.queue.interrupt_all()


def test_heartbeats_that_come_together_are_answered_each_by_itself(store: Store) -> None:
    """The dead one among them fails alone, and nobody's progress becomes another's."""
    store.experiments.submit(comparison_spec(seeds=range(6)))
    leases = store.start_next(6)
    *alive, cancelled, dead = leases
    store.runs.apply(cancelled.run_id, RunAction.CANCEL)
    store.queue.release(dead.run_id, 1, AttemptOutcome.LOST, "its process died")
    for step in range(1, 6):
        replies = together(
            *[
                partial(
                    store.attempts.heartbeat,
                    lease.run_id,
                    1,
                    lease.token,
                    Heartbeat(step=step, device_seconds=index),
                )
                for index, lease in enumerate(leases)
            ]
        )
        assert replies[:-1] == [HeartbeatReply(command=Command.CONTINUE)] * 4 + [HeartbeatReply(command=Command.CANCEL)]
        assert isinstance(replies[-1], LeaseLostError)
    for index, lease in enumerate(alive):
        run = store.runs.get(lease.run_id)
        assert (run.step, run.device_seconds) == (5, index)
    assert store.runs.get(dead.run_id).step == 0


def test_points_that_come_together_go_each_to_their_run_and_once(store: Store) -> None:
    """One comes twice, and one from an attempt that is lost."""
    store.experiments.submit(comparison_spec(seeds=range(4)))
    leases = store.start_next(4)
    *alive, dead = leases
    store.queue.release(dead.run_id, 1, AttemptOutcome.LOST, "its process died")

    def bring(index: int, number: int) -> None:
        points = [Point(step=step, tokens=step, train_loss=float(index)) for step in (2 * number + 1, 2 * number + 2)]
        lease = leases[index]
        store.attempts.append_points(lease.run_id, 1, lease.token, PointsBatch.from_points(number, points))

    for number in range(3):
        outcomes = together(*[partial(bring, index, number) for index in (0, 0, 1, 2, 3)])
        assert outcomes[:-1] == [None] * 4
        assert isinstance(outcomes[-1], LeaseLostError)
    for index, lease in enumerate(alive):
        columns = store.runs.series(lease.run_id)
        assert columns.step.tolist() == [1, 2, 3, 4, 5, 6]
        assert set(columns.values["train_loss"].tolist()) == {float(index)}
        assert store.runs.get(lease.run_id).last_train_loss == index
    assert store.runs.points(dead.run_id) == ()


@pytest.mark.postgres
def test_one_locked_run_does_not_keep_the_reports_of_others_waiting(postgresql: PostgresqlServer) -> None:
    """Somebody holds one run's row for as long as it likes; the others' heartbeats and points pass it by."""
    with postgresql.database() as database:
        store = open_store(database)
        store.experiments.submit(comparison_spec(seeds=range(3)))
        locked, *other_leases = store.claim(cpus=3, gpus=0, limit=3)
        for lease in (locked, *other_leases):
            store.attempts.hello(lease.run_id, 1, lease.token)
        beat = Heartbeat(step=3)
        with ThreadPoolExecutor(2) as pool:
            with database.writing() as connection:
                assert lock(database, connection, select_runs().where(tables.runs.c.id == locked.run_id))[0]
                waiting = pool.submit(store.attempts.heartbeat, locked.run_id, 1, locked.token, beat)
                for _ in range(ROUNDS):
                    for lease in other_leases:
                        beaten = pool.submit(store.attempts.heartbeat, lease.run_id, 1, lease.token, beat)
                        assert beaten.result(timeout=60) == HeartbeatReply(command=Command.CONTINUE)
                assert not waiting.done()
            assert waiting.result(timeout=60) == HeartbeatReply(command=Command.CONTINUE)
        assert store.runs.get(locked.run_id).step == 3


def test_two_claimers_never_get_the_same_run(store: Store) -> None:
    store.experiments.submit(comparison_spec(seeds=range(40)))

    def take_all() -> list[str]:
        run_ids: list[str] = []
        while leases := store.claim(cpus=3, gpus=0, limit=3):
            run_ids += [lease.run_id for lease in leases]
        return run_ids

    first, second = together(take_all, take_all)
    assert isinstance(first, list)
    assert isinstance(second, list)
    claimed = first + second
    # A claimer may find nothing while the other one holds the last rows: those are still queued, and not lost.
    claimed += [lease.run_id for lease in store.claim(cpus=99, gpus=0, limit=99)]
    assert sorted(claimed) == sorted(set(claimed))
    assert len(claimed) == 40


@pytest.mark.postgres
def test_a_claimer_does_not_wait_for_rows_that_another_one_holds(postgresql: PostgresqlServer) -> None:
    """While one dispatcher is about to lease the head of the queue, another one gets what comes behind it, at once."""
    with postgresql.database() as database:
        store = open_store(database)
        runs = store.runs.page(experiment_id=store.experiments.submit(comparison_spec(seeds=range(4))).experiment.id)
        with ThreadPoolExecutor(1) as pool, database.writing() as connection:
            head = select_runs().order_by(tables.runs.c.position).limit(2)
            held, _ = lock(database, connection, head)
            claimed = pool.submit(store.claim, cpus=4, gpus=0, limit=2).result(timeout=10)
        assert [run.id for run in held] == [run.id for run in runs[:2]]
        assert [lease.run_id for lease in claimed] == [run.id for run in runs[2:]]


def test_two_finishes_with_one_token_record_one_result(store: Store) -> None:
    store.experiments.submit(comparison_spec(seeds=(1,)))
    lease = store.start()
    finish = [lambda: store.attempts.finish(lease.run_id, 1, lease.token, result())] * 3
    assert together(*finish) == [None] * 3
    assert len(store.runs.events(lease.run_id)) == 4


SUBMITTER = """
import sys
from orchestrator.store.database import Database
from tests.factories.services import make_services
from tests.factories.stores import comparison_spec

experiments = make_services(Database(sys.argv[1])).experiments
while True:
    print(experiments.submit(comparison_spec()).experiment.id, flush=True)
"""


def test_a_killed_process_loses_no_submission_that_it_acknowledged(tmp_path: Path) -> None:
    """kill -9 in the middle of many submits: every one that was answered is there, whole; none is half there."""
    with sqlite_database(tmp_path) as database:
        (file,) = tmp_path.glob("*.sqlite3")
        command = [sys.executable, "-c", SUBMITTER, f"sqlite:///{file}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
            assert process.stdout is not None
            ids = [process.stdout.readline().strip() for _ in range(8)]
            process.kill()
            ids += [line.strip() for line in process.stdout if line.endswith("\n")]
        services = make_services(database)
        stored = services.experiments.page(limit=1000)
        assert set(ids) <= {experiment.id for experiment in stored}
        assert len(stored) <= len(ids) + 1, "at most one more was stored and not yet acknowledged"
        assert all(experiment.counts.total == 2 for experiment in stored)
        assert len(claim(Queue(database, LeasePolicy()), cpus=9999, limit=9999)) == 2 * len(stored)


def test_many_finishes_at_once_never_lock_each_other_out(store: Store) -> None:
    """Eight workers that start and finish runs at the same time: every call is answered, none by a deadlock."""
    runs = 160
    store.experiments.submit(comparison_spec(seeds=tuple(range(runs))))
    leases = store.claim(cpus=runs, gpus=0, limit=runs)

    def carry_out(share: slice) -> int:
        for lease in leases[share]:
            store.attempts.hello(lease.run_id, 1, lease.token)
            store.attempts.finish(lease.run_id, 1, lease.token, result())
        return len(leases[share])

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(carry_out, [slice(start, None, 8) for start in range(8)])) == runs
