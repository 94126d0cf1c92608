"""Trials of a sweep in the store: each number once, early stops as results, cancels and budgets, on both databases."""

from functools import partial

import pytest

from orchestrator.jobs import Lease, RunAction, RunStatus
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.records import RunRecord
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.queue import trials
from orchestrator.sweeps.trials import LOSS_IF_LOST, trial_run
from tests.contract.conftest import Store
from tests.contract.queue.test_races import ROUNDS, together
from tests.factories.stores import result
from tests.factories.sweep import add_trial, sweep_spec
from worker.records.protocol import Command, Heartbeat, PointsBatch
from worker.records.result import Point, Verdict

ASHA = sweep_spec(algorithm="asha")


def begun(store: Store, spec: SweepSpec = ASHA) -> str:
    return store.experiments.submit(spec).experiment.id


def add(store: Store, sweep_id: str, number: int, spec: SweepSpec = ASHA) -> str | None:
    return add_trial(store.database, sweep_id, spec, number)


def tell(store: Store, lease: Lease, losses: dict[int, float]) -> None:
    points = tuple(Point(step=step, tokens=step, val_loss=loss) for step, loss in losses.items())
    store.attempts.append_points(
        lease.run_id, lease.attempt, lease.token, PointsBatch.from_points(sequence=0, points=points)
    )


def all_of(store: Store, sweep_id: str) -> tuple[RunRecord, ...]:
    return store.runs.page(experiment_id=sweep_id)


def test_a_sweep_begins_without_runs_and_may_grow(store: Store):
    sweep_id = begun(store)
    assert trials.live_sweeps(store.database) == (sweep_id,)
    record = store.experiments.get(sweep_id)
    assert (record.kind, record.counts.total, record.counts.growing, record.counts.done()) == ("sweep", 0, True, False)
    assert record.spec == ASHA


def test_a_trial_is_added_once_whatever_it_is_asked_with(store: Store):
    """The number decides: a driver that comes back with other hyperparameters finds the run that is there."""
    sweep_id = begun(store)
    run_id = add(store, sweep_id, 0)
    changed_trial = trial_run(ASHA, 0, {"lr": 0.05})
    assert trials.add(store.database, sweep_id, ASHA, 0, changed_trial) == run_id
    assert [(run.id, run.lr, run.position) for run in all_of(store, sweep_id)] == [(run_id, 6e-4, 0)]


def test_drivers_that_race_add_one_run(store: Store):
    sweep_id = begun(store)
    for number in range(ROUNDS):
        run_ids = together(*[partial(add, store, sweep_id, number)] * 2)
        assert run_ids[0] == run_ids[1]
    assert [run.position for run in all_of(store, sweep_id)] == list(range(ROUNDS))


def test_an_early_stop_is_a_command_and_then_a_result(store: Store):
    sweep_id = begun(store)
    add(store, sweep_id, 0)
    lease = store.start()
    beat = Heartbeat(step=4, device_seconds=3.0)
    assert store.attempts.heartbeat(lease.run_id, 1, lease.token, beat).command is Command.CONTINUE
    tell(store, lease, {2: 4.0, 4: 3.5})
    assert trials.ask_to_stop(store.database, lease.run_id)
    assert store.attempts.heartbeat(lease.run_id, 1, lease.token, beat).command is Command.STOP_EARLY
    early = result(final_val_loss=None, verdict=Verdict.STOPPED_EARLY, steps=4)
    store.attempts.finish(lease.run_id, 1, lease.token, early)
    run = store.runs.get(lease.run_id)
    assert (run.status, run.result, run.last_val_loss) == (RunStatus.SUCCEEDED, early, 3.5)
    assert not trials.ask_to_stop(store.database, lease.run_id)


def test_a_stop_outlives_the_attempt_that_it_was_meant_for(store: Store):
    """The worker dies before it hears of it: the next attempt does."""
    add(store, begun(store), 0)
    lease = store.start()
    trials.ask_to_stop(store.database, lease.run_id)
    store.queue.interrupt_all()
    second = store.start()
    assert store.attempts.heartbeat(second.run_id, 2, second.token, Heartbeat()).command is Command.STOP_EARLY


def test_a_person_comes_before_the_sweep(store: Store):
    add(store, begun(store), 0)
    lease = store.start()
    trials.ask_to_stop(store.database, lease.run_id)
    store.runs.apply(lease.run_id, RunAction.CANCEL)
    assert store.attempts.heartbeat(lease.run_id, 1, lease.token, Heartbeat()).command is Command.CANCEL


def test_only_trials_of_such_sweeps_can_be_stopped_early(store: Store):
    spec = sweep_spec()
    run_id = add(store, begun(store, spec), 0, spec)
    assert run_id is not None and not trials.ask_to_stop(store.database, run_id)


def test_trials_hear_sooner_than_other_runs(store: Store):
    add(store, begun(store), 0)
    (lease,) = store.claim(cpus=1, limit=1)
    assert store.attempts.hello(lease.run_id, 1, lease.token).heartbeat_seconds == 1.0


def test_a_cancelled_sweep_takes_no_trial_and_goes_on_when_it_is_retried(store: Store):
    sweep_id = begun(store)
    first = add(store, sweep_id, 0)
    store.experiments.apply(sweep_id, RunAction.CANCEL)
    assert add(store, sweep_id, 1) is None and add(store, sweep_id, 0) == first
    assert store.experiments.get(sweep_id).counts.done()
    store.experiments.apply(sweep_id, RunAction.RETRY)
    assert trials.live_sweeps(store.database) == (sweep_id,)
    assert add(store, sweep_id, 1) is not None


def test_a_paused_sweep_gets_trials_that_wait(store: Store):
    sweep_id = begun(store)
    store.experiments.apply(sweep_id, RunAction.PAUSE)
    add(store, sweep_id, 0)
    assert [run.status for run in all_of(store, sweep_id)] == [RunStatus.PAUSED]
    store.experiments.apply(sweep_id, RunAction.RESUME)
    assert [run.status for run in all_of(store, sweep_id)] == [RunStatus.QUEUED]


def test_trials_that_have_not_ended_are_counted(store: Store):
    sweep_id = begun(store)
    assert trials.count_live(store.database, sweep_id) == 0
    for number in range(3):
        add(store, sweep_id, number)
    lease = store.start()
    assert trials.count_live(store.database, sweep_id) == 3
    store.attempts.finish(lease.run_id, 1, lease.token, result())
    assert trials.count_live(store.database, sweep_id) == 2


@pytest.mark.parametrize(
    ("verdict", "final", "last_steps"),
    [
        (Verdict.CONVERGED, 2.5, [10]),
        (Verdict.DIVERGED, None, [4]),
        (Verdict.OUT_OF_MEMORY, None, [4]),
        (Verdict.STOPPED_EARLY, None, []),
    ],
)
def test_a_follower_tells_every_loss_and_how_it_ended(
    store: Store, verdict: Verdict, final: float | None, last_steps: list[int]
):
    """Asked again, as a driver does that was started anew, it tells the same."""
    from orchestrator.sweeps.trial_follower import TuneReport, reports  # Ray Tune takes a second

    add(store, begun(store), 0)
    lease = store.start()
    tell(store, lease, {0: 5.6, 2: 4.0, 4: 3.5})
    store.attempts.finish(lease.run_id, 1, lease.token, result(final_val_loss=final, verdict=verdict, steps=4))
    last = [TuneReport(step=step, loss=LOSS_IF_LOST if final is None else final) for step in last_steps]
    expected = [TuneReport(step=2, loss=4.0), TuneReport(step=4, loss=3.5), *last]
    for _ in range(2):
        assert list(reports(store.database, lease.run_id, 10)) == expected


def test_a_trial_that_was_cancelled_says_nothing_of_its_hyperparameters(store: Store):
    from orchestrator.sweeps.trial_follower import reports  # as above

    run_id = add(store, begun(store), 0)
    assert run_id is not None
    store.runs.apply(run_id, RunAction.CANCEL)
    assert [report.faultless for report in reports(store.database, run_id, 10)] == [False]


def test_the_end_of_a_sweep_is_told_of_though_no_run_ends_then(store: Store):
    """Who follows the outbox saw its last trial end while more could follow; streams and pages wait for a version."""
    outbox = ExportOutbox(store.database)
    for end in (lambda id: trials.close(store.database, id), partial(store.experiments.apply, action=RunAction.CANCEL)):
        sweep_id = begun(store)
        for entry in outbox.due():
            outbox.confirm(entry.id)
        versions = store.experiments.version(sweep_id), store.monitor.version()
        end(sweep_id)
        assert store.experiments.version(sweep_id) > versions[0] and store.monitor.version() > versions[1]
        assert [entry.experiment_id for entry in outbox.due()] == [sweep_id]
        assert store.experiments.get(sweep_id).counts.done()


def test_a_sweep_is_not_reopened_beyond_its_deadline(store: Store):
    spec = sweep_spec(deadline_seconds=5.0)
    sweep_id = begun(store, spec)
    add(store, sweep_id, 0, spec)
    store.pass_time(10)
    assert len(store.queue.stop_late()) == 1
    store.experiments.apply(sweep_id, RunAction.RETRY)
    assert trials.live_sweeps(store.database) == ()
    assert [run.status for run in all_of(store, sweep_id)] == [RunStatus.QUEUED]
