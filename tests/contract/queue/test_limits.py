"""Limits of time, on SQLite and PostgreSQL: who is stopped, how, and what is said of it.

The clock is moved by minutes, so that the time that a test itself takes decides nothing.
"""

import re

import pytest

from orchestrator.jobs import AttemptOutcome, Lease, RunAction, RunStatus, TimeLimit
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from tests.contract.conftest import POLICY, Store
from tests.factories.stores import comparison_spec, result
from worker.records.protocol import Command, Heartbeat, Stopped


def submit(store: Store, seeds: tuple[int, ...] = (1,), **limits: float) -> list[str]:
    """Submit a small comparison with limits; the ids of its runs."""
    spec = comparison_spec(seeds=seeds).model_copy(update=limits)
    return [run.id for run in store.runs.page(experiment_id=store.experiments.submit(spec).experiment.id)]


def live_for(store: Store, lease: Lease, seconds: float) -> Command:
    """Let time pass, heartbeats included; the last one's answer."""
    command = Command.CONTINUE
    while seconds > 0:
        store.pass_time(min(seconds, 10))
        seconds -= 10
        command = store.attempts.heartbeat(lease.run_id, lease.attempt, lease.token, Heartbeat(step=3)).command
    return command


def test_a_run_whose_own_time_is_up_is_asked_to_leave_and_says_why(store: Store) -> None:
    (run_id,) = submit(store, max_run_seconds=400.0)
    lease = store.start()
    live_for(store, lease, 300)
    assert store.queue.stop_late() == ()
    live_for(store, lease, 100)
    assert store.queue.stop_late() == ((run_id, TimeLimit.MAX_RUN_SECONDS),)
    assert store.queue.stop_late() == (), "once"
    assert live_for(store, lease, 10) is Command.CANCEL
    stopped = Stopped(command=Command.CANCEL, step=3, device_seconds=61.0)
    store.attempts.finish(run_id, 1, lease.token, stopped)
    run = store.runs.get(run_id)
    assert (run.status, run.limit_reached) == (RunStatus.CANCELLED, TimeLimit.MAX_RUN_SECONDS)
    explanation = run.reason
    assert explanation is not None
    assert re.fullmatch(r"stopped after 4\d\d s: max_run_seconds allows 400 s", explanation)
    (attempt,) = store.runs.attempts(run_id)
    assert (attempt.outcome, attempt.message) == (AttemptOutcome.STOPPED, f"cancel at step 3; {explanation}")
    assert [(event.to_status, event.reason) for event in store.runs.events(run_id)][-2:] == [
        (RunStatus.CANCELLING, explanation),
        (RunStatus.CANCELLED, explanation),
    ]


def test_one_that_does_not_leave_is_ended_by_force(store: Store) -> None:
    (run_id,) = submit(store, max_run_seconds=1.0)
    lease = store.start()
    live_for(store, lease, 10)
    store.queue.stop_late()
    assert store.queue.overdue_cancels() == ()
    live_for(store, lease, POLICY.cancel_grace_seconds)
    assert store.queue.overdue_cancels() == ((run_id, 1),)
    store.queue.release(run_id, 1, AttemptOutcome.LOST, "ended after the grace time")
    run, (attempt,) = store.runs.get(run_id), store.runs.attempts(run_id)
    assert (run.status, run.limit_reached) == (RunStatus.CANCELLED, TimeLimit.MAX_RUN_SECONDS)
    assert (attempt.message or "").startswith("ended after the grace time; stopped after")


def test_time_of_all_attempts_counts_and_a_pause_does_not(store: Store) -> None:
    (run_id,) = submit(store, max_run_seconds=400.0)
    lease = store.start()
    live_for(store, lease, 200)
    store.runs.apply(run_id, RunAction.PAUSE)
    store.attempts.finish(run_id, 1, lease.token, Stopped(command=Command.PAUSE, step=3, device_seconds=200.0))
    store.pass_time(500)
    assert store.queue.stop_late() == ()
    store.runs.apply(run_id, RunAction.RESUME)
    second_lease = store.start()
    assert store.queue.stop_late() == ()
    live_for(store, second_lease, 200)
    assert store.queue.stop_late() == ((run_id, TimeLimit.MAX_RUN_SECONDS),)


def test_a_silent_worker_spends_time_too(store: Store) -> None:
    (run_id,) = submit(store, max_run_seconds=12.0)
    store.start()
    store.pass_time(14)
    assert store.queue.stop_late() == ((run_id, TimeLimit.MAX_RUN_SECONDS),)


def test_the_deadline_stops_what_trains_and_keeps_the_rest_from_beginning(store: Store) -> None:
    trains, waits, rests = submit(store, seeds=(1, 2, 3), deadline_seconds=400.0)
    lease = store.start()
    store.runs.apply(rests, RunAction.PAUSE)
    live_for(store, lease, 300)
    assert store.queue.stop_late() == ()
    live_for(store, lease, 100)
    assert sorted(store.queue.stop_late()) == [
        (run_id, TimeLimit.DEADLINE_SECONDS) for run_id in (trains, waits, rests)
    ]
    records = [store.runs.get(run_id) for run_id in (trains, waits, rests)]
    assert [run.status for run in records] == [RunStatus.CANCELLING, RunStatus.CANCELLED, RunStatus.CANCELLED]
    assert {(run.reason or "").partition(":")[0] for run in records} == {"the deadline of its experiment has passed"}
    assert store.claim(cpus=8, limit=8) == ()


def test_what_is_done_at_the_deadline_counts(store: Store) -> None:
    """A result that arrives while its run is being stopped is taken, and no limit was reached then."""
    (run_id,) = submit(store, deadline_seconds=5.0)
    lease = store.start()
    live_for(store, lease, 10)
    store.queue.stop_late()
    store.attempts.finish(run_id, 1, lease.token, result())
    run = store.runs.get(run_id)
    assert (run.status, run.limit_reached, run.reason) == (RunStatus.SUCCEEDED, None, None)


@pytest.mark.parametrize("limit", ["max_run_seconds", "deadline_seconds"])
def test_a_retry_has_its_time_anew(store: Store, limit: str) -> None:
    (run_id,) = submit(store, (1,), **{limit: 200.0})
    lease = store.start()
    live_for(store, lease, 210)
    store.queue.stop_late()
    store.attempts.finish(run_id, 1, lease.token, Stopped(command=Command.CANCEL, step=3, device_seconds=10.0))
    store.runs.apply(run_id, RunAction.RETRY)
    store.start()
    assert store.queue.stop_late() == ()
    assert store.runs.get(run_id).limit_reached is None


def test_a_tuned_comparison_gets_nothing_after_its_deadline(store: Store) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    store.pass_time(10)
    assert len(store.queue.stop_late()) == 3
    store.follow()
    record = store.experiments.get(experiment.id)
    assert (record.counts.total, record.counts.growing, record.counts.done()) == (3, False, True)


def test_what_follows_has_the_limits_of_its_experiment(store: Store) -> None:
    spec = tuned().model_copy(update={"deadline_seconds": 100.0, "max_run_seconds": 50.0})
    store.experiments.submit(spec)
    finish_trials(store)
    lease = store.start()
    live_for(store, lease, 60)
    assert store.queue.stop_late() == ((lease.run_id, TimeLimit.MAX_RUN_SECONDS),)
    assert store.runs.get(lease.run_id).seed == 0
    assert live_for(store, lease, 50) is Command.CANCEL


def test_what_follows_from_a_retry_beyond_the_deadline_has_none(store: Store) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    store.pass_time(10)
    store.queue.stop_late()
    store.experiments.apply(experiment.id, RunAction.RETRY)
    finish_trials(store)
    assert store.queue.stop_late() == ()
    store.follow()
    assert store.experiments.get(experiment.id).counts.by_status == {RunStatus.SUCCEEDED: 3, RunStatus.QUEUED: 1}
    assert store.queue.stop_late() == ()


def tuned() -> ComparisonSpec:
    """Tuned by trials after a first three, with a deadline."""
    return comparison_spec(seeds=(1,), tuning=Tuning(seeds=(0,))).model_copy(update={"deadline_seconds": 5.0})


def finish_trials(store: Store) -> None:
    """The first three."""
    for _ in range(3):
        lease = store.start()
        store.attempts.finish(lease.run_id, lease.attempt, lease.token, result())
