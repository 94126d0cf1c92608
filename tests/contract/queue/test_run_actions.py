"""Actions of users on runs, on SQLite and PostgreSQL: pause, resume and retry in every state, and while they change."""

from functools import partial
from itertools import product

import pytest

from orchestrator.errors import ConflictError
from orchestrator.jobs import AttemptOutcome, Lease, RunAction, RunStatus
from tests.contract.conftest import POLICY, Store
from tests.contract.queue.test_races import together
from tests.factories.stores import comparison_spec, result
from worker.records.protocol import CheckpointNotice, Command, Failure, FailureKind, Heartbeat, Stopped
from worker.spec.run import Resources


def stop(store: Store, lease: Lease, command: Command = Command.PAUSE, step: int = 3) -> None:
    store.attempts.finish(
        lease.run_id, lease.attempt, lease.token, Stopped(command=command, step=step, device_seconds=6)
    )


def fail(store: Store, lease: Lease, kind: FailureKind = FailureKind.PROGRAM) -> None:
    store.attempts.finish(
        lease.run_id, lease.attempt, lease.token, Failure(kind=kind, message="broke", device_seconds=1)
    )


def statuses(store: Store, run_id: str) -> list[str]:
    return [event.to_status.value for event in store.runs.events(run_id)]


def test_a_paused_run_stops_with_a_checkpoint_and_goes_on_from_it(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    lease = store.start()
    assert store.runs.apply(run_id, RunAction.PAUSE).status is RunStatus.PAUSING
    assert store.attempts.heartbeat(run_id, 1, lease.token, Heartbeat(step=2)).command is Command.PAUSE
    notice = CheckpointNotice(step=3, path="c", size_bytes=9, sha256="s")
    store.attempts.checkpoint(run_id, 1, lease.token, notice)
    stop(store, lease)
    assert store.runs.get(run_id).status is RunStatus.PAUSED
    store.pass_time(1000)
    assert store.claim(cpus=8, gpus=0, limit=1) == ()
    assert store.runs.apply(run_id, RunAction.RESUME).status is RunStatus.QUEUED
    (second_lease,) = store.claim(cpus=8, gpus=0, limit=1)
    assert store.attempts.hello(run_id, second_lease.attempt, second_lease.token).checkpoint == notice.model_copy(
        update={"attempt": 1}
    )
    store.attempts.finish(run_id, second_lease.attempt, second_lease.token, result())
    run = store.runs.get(run_id)
    assert (run.status, run.attempt, run.device_seconds) == (RunStatus.SUCCEEDED, 2, 6 + 4)
    events = ["queued", "leased", "running", "pausing", "paused", "queued", "leased", "running", "succeeded"]
    assert statuses(store, run_id) == events


@pytest.mark.parametrize("said_hello", [True, False])
def test_a_pause_can_be_taken_back_while_the_worker_does_not_know(store: Store, said_hello: bool) -> None:
    (run_id,) = store.submit(seeds=(1,))
    (lease,) = store.claim(cpus=8, gpus=0, limit=1)
    if said_hello:
        store.attempts.hello(run_id, 1, lease.token)
    store.runs.apply(run_id, RunAction.PAUSE)
    resumed = store.runs.apply(run_id, RunAction.RESUME)
    assert resumed.status is (RunStatus.RUNNING if said_hello else RunStatus.LEASED)
    store.attempts.hello(run_id, 1, lease.token)
    assert store.attempts.heartbeat(run_id, 1, lease.token, Heartbeat()).command is Command.CONTINUE
    store.attempts.finish(run_id, 1, lease.token, result())
    assert store.runs.get(run_id).status is RunStatus.SUCCEEDED


def test_a_worker_that_had_stopped_before_the_pause_was_taken_back_sends_its_run_to_the_queue(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    lease = store.start()
    store.runs.apply(run_id, RunAction.PAUSE)
    store.runs.apply(run_id, RunAction.RESUME)
    with pytest.raises(ConflictError, match="nobody asked"):
        stop(store, lease, Command.CANCEL)
    stop(store, lease)
    stop(store, lease)
    run = store.runs.get(run_id)
    assert (run.status, run.step) == (RunStatus.QUEUED, 3)
    assert store.start().attempt == 2


ALLOWED = {
    RunAction.PAUSE: {"queued", "leased", "running", "retry_wait", "pausing", "paused"},
    RunAction.RESUME: {"queued", "leased", "running", "retry_wait", "pausing", "paused"},
    RunAction.RETRY: {"queued", "leased", "running", "retry_wait", "failed", "cancelled"},
    RunAction.CANCEL: {"queued", "leased", "running", "retry_wait", "pausing", "paused", "cancelling", "cancelled"},
}


def bring(store: Store, status: RunStatus) -> str:
    """A run in that state."""
    (run_id,) = store.submit(seeds=(1,))
    if status in ("leased", "pausing"):
        (lease,) = store.claim(cpus=8, gpus=0, limit=1)
    elif status not in ("queued", "paused"):
        lease = store.start()
    if status in ("pausing", "paused"):
        store.runs.apply(run_id, RunAction.PAUSE)
    if status in ("cancelling", "cancelled"):
        store.runs.apply(run_id, RunAction.CANCEL)
    if status == "cancelled":
        stop(store, lease, Command.CANCEL)
    if status in ("retry_wait", "failed"):
        fail(store, lease, FailureKind.PROGRAM if status == "failed" else FailureKind.INFRASTRUCTURE)
    if status == "succeeded":
        store.attempts.finish(run_id, 1, lease.token, result())
    assert store.runs.get(run_id).status is status
    return run_id


def test_every_action_in_every_state_is_taken_or_refused_and_may_be_repeated(store: Store) -> None:
    for status, action in product(RunStatus, RunAction):
        run_id = bring(store, status)
        if status.value not in ALLOWED[action]:
            events = store.runs.events(run_id)
            with pytest.raises(ConflictError, match=rf"run {run_id} .*{status.value}; "):
                store.runs.apply(run_id, action)
            assert store.runs.events(run_id) == events
        else:
            run = store.runs.apply(run_id, action)
            assert store.runs.apply(run_id, action) == run
        store.experiments.apply(run_id.partition("-")[0], RunAction.CANCEL)
        store.queue.interrupt_all()


AFTER: dict[object, tuple[str, str, str]] = {
    "result": ("succeeded", "succeeded", "succeeded"),
    "lost": ("retry_wait", "paused", "cancelled"),
    FailureKind.PROGRAM: ("failed", "failed", "cancelled"),
    FailureKind.INFRASTRUCTURE: ("retry_wait", "paused", "cancelled"),
    FailureKind.INTERRUPTED: ("queued", "paused", "cancelled"),
    FailureKind.STORAGE_FULL: ("queued", "paused", "cancelled"),
    FailureKind.OUT_OF_MEMORY: ("retry_wait", "paused", "cancelled"),
}
"""Ending of an attempt → where a run goes that was running, was asked to pause, was asked to cancel."""


def test_every_ending_in_every_live_state_leads_where_the_table_says(store: Store) -> None:
    for ending, states in AFTER.items():
        for action, expected in zip((None, RunAction.PAUSE, RunAction.CANCEL), states, strict=True):
            (run_id,) = store.submit(seeds=(1,))
            lease = store.start()
            if action is not None:
                store.runs.apply(run_id, action)
            if ending == "result":
                store.attempts.finish(run_id, 1, lease.token, result())
            elif ending == "lost":
                assert store.queue.release(run_id, 1, AttemptOutcome.LOST, "its process died")
                assert not store.queue.release(run_id, 1, AttemptOutcome.LOST, "its process died"), "once"
            else:
                assert isinstance(ending, FailureKind)
                fail(store, lease, ending)
            assert store.runs.get(run_id).status.value == expected, (ending, action)
            store.experiments.apply(run_id.partition("-")[0], RunAction.CANCEL)


def test_an_experiment_is_paused_resumed_and_retried_as_far_as_its_runs_allow(store: Store) -> None:
    ended_id, broken, running, waiting = store.submit(seeds=range(4))
    leases = [store.start() for _ in range(3)]
    store.attempts.finish(ended_id, 1, leases[0].token, result())
    fail(store, leases[1])
    experiment = ended_id.partition("-")[0]

    def now() -> list[str]:
        return [store.runs.get(run_id).status.value for run_id in (ended_id, broken, running, waiting)]

    store.experiments.apply(experiment, RunAction.PAUSE)
    assert now() == ["succeeded", "failed", "pausing", "paused"]
    stop(store, leases[2])
    store.experiments.apply(experiment, RunAction.RETRY)
    assert now() == ["succeeded", "queued", "paused", "paused"]
    store.experiments.apply(experiment, RunAction.RESUME)
    assert now() == ["succeeded", "queued", "queued", "queued"]


def test_of_a_resume_and_an_obeying_worker_both_are_honoured_in_any_order(store: Store) -> None:
    """Whoever comes first: the run is in the queue afterwards, never stuck as paused or held by nobody."""
    for _ in range(12):
        (run_id,) = store.submit(seeds=(1,))
        lease = store.start()
        store.runs.apply(run_id, RunAction.PAUSE)
        together(partial(stop, store, lease), partial(store.runs.apply, run_id, RunAction.RESUME))
        assert store.runs.get(run_id).status is RunStatus.QUEUED
        store.runs.apply(run_id, RunAction.CANCEL)


def test_a_run_goes_on_with_another_number_of_processes(store: Store) -> None:
    """A killed one waits for its next attempt; paused, and resumed with fewer. What it needs of a node follows."""
    spec = comparison_spec(seeds=(1,)).model_copy(update={"resources": Resources(cpus=2, processes=4)})
    experiment = store.experiments.submit(spec).experiment
    (run_id,) = [run.id for run in store.runs.page(experiment_id=experiment.id)]
    lease = store.start()
    assert store.runs.apply(run_id, RunAction.RESUME, 4).status is RunStatus.RUNNING
    with pytest.raises(ConflictError, match="is running with 4 processes; pause it, then resume it with 2"):
        store.runs.apply(run_id, RunAction.RESUME, 2)
    fail(store, lease, FailureKind.INFRASTRUCTURE)
    assert store.runs.apply(run_id, RunAction.PAUSE).status is RunStatus.PAUSED
    batch = spec.workload.budget.batch_sequences
    with pytest.raises(ConflictError, match=rf"batch_sequences: must be a multiple of {batch - 1}"):
        store.runs.apply(run_id, RunAction.RESUME, batch - 1)
    before = store.runs.get(run_id)
    assert before.spec is not None
    assert (before.status, before.spec.resources) == (RunStatus.PAUSED, Resources(cpus=2, processes=4))

    after = store.runs.apply(run_id, RunAction.RESUME, 2)
    assert after.spec is not None
    assert (after.status, after.spec.resources) == (RunStatus.QUEUED, Resources(cpus=2, processes=2))
    assert store.runs.apply(run_id, RunAction.RESUME, 2) == after
    assert [event.reason for event in store.runs.events(run_id)][-1] == "goes on with 2 processes instead of 4"
    assert after.spec.workload == before.spec.workload
    assert store.claim(cpus=3, gpus=0, limit=1) == ()
    (second_lease,) = store.claim(cpus=4, gpus=0, limit=1)
    assert second_lease.spec == after.spec
    fail(store, second_lease)
    assert store.runs.get(run_id).status is RunStatus.FAILED
    retried = store.runs.apply(run_id, RunAction.RETRY, 1)
    assert retried.spec is not None
    assert (retried.status, retried.spec.resources) == (RunStatus.QUEUED, Resources(cpus=2, processes=1))


def test_a_failed_run_that_is_retried_gets_one_more_failure(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    for attempt in range(1, POLICY.max_failures + 1):
        fail(store, store.start(), FailureKind.INFRASTRUCTURE)
        store.pass_time(POLICY.backoff_seconds * 2**attempt)
    assert store.runs.get(run_id).status is RunStatus.FAILED
    retried = store.runs.apply(run_id, RunAction.RETRY)
    assert (retried.status, retried.ended_at, retried.reason) == (RunStatus.QUEUED, None, None)
    lease = store.start()
    assert lease.attempt == POLICY.max_failures + 1
    fail(store, lease, FailureKind.INFRASTRUCTURE)
    assert store.runs.get(run_id).status is RunStatus.FAILED
    store.runs.apply(run_id, RunAction.RETRY)
    last = store.start()
    store.attempts.finish(run_id, last.attempt, last.token, result())
    assert [attempt.outcome for attempt in store.runs.attempts(run_id)] == ["broken"] * 4 + ["succeeded"]
