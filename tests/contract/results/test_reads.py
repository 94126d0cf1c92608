"""The read side: pages, counts, progress and versions, on SQLite and PostgreSQL."""

from itertools import product

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.records import SORT_KEYS, Progress
from tests.contract.conftest import Store
from tests.factories.stores import batch, comparison_spec, result
from worker.records.protocol import Heartbeat


def test_pages_of_experiments_go_from_new_to_old_without_gap_or_repetition(store: Store) -> None:
    ids = [store.experiments.submit(comparison_spec(seeds=(1,))).experiment.id for _ in range(7)]
    pages = [store.experiments.page(limit=3)]
    while pages[-1] and len(pages) < 10:
        pages.append(store.experiments.page(limit=3, before=pages[-1][-1].id))
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert [experiment.id for page in pages for experiment in page] == ids[::-1]


def test_pages_of_runs_go_through_all_experiments_without_gap_or_repetition(store: Store) -> None:
    old, new = (store.experiments.submit(comparison_spec(seeds=range(5))).experiment.id for _ in range(2))
    pages = [store.runs.page(limit=4)]
    while pages[-1] and len(pages) < 10:
        pages.append(store.runs.page(limit=4, after=pages[-1][-1].id))
    positions = [(run.experiment_id, run.position) for page in pages for run in page]
    assert positions == [(new, n) for n in range(5)] + [(old, n) for n in range(5)]


def test_runs_are_found_by_experiment_and_state(store: Store) -> None:
    first, _ = (store.experiments.submit(comparison_spec(seeds=range(3))).experiment.id for _ in range(2))
    store.claim(cpus=1, gpus=0, limit=1)
    (leased,) = store.runs.page(status=RunStatus.LEASED)
    assert leased.experiment_id == first
    assert len(store.runs.page(status=RunStatus.QUEUED)) == 5
    assert len(store.runs.page(experiment_id=first, status=RunStatus.QUEUED)) == 2
    assert store.runs.page(status=RunStatus.FAILED) == ()


def test_a_page_behind_something_that_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.experiments.page(before="nothing")
    with pytest.raises(NotFoundError):
        store.runs.page(after="nothing")
    with pytest.raises(NotFoundError):
        store.runs.page(experiment_id="nothing")


def test_a_page_of_an_experiments_runs_begins_after_none_of_anothers(store: Store) -> None:
    first_id, second_id = (store.experiments.submit(comparison_spec(seeds=range(2))).experiment.id for _ in range(2))
    assert len(store.runs.page(experiment_id=first_id, after=f"{first_id}-0000")) == 1
    with pytest.raises(NotFoundError, match=f"experiment '{first_id}' has no run '{second_id}-0000'"):
        store.runs.page(experiment_id=first_id, after=f"{second_id}-0000")


def test_pages_in_every_order_go_through_all_runs_with_unknown_values_last(store: Store) -> None:
    spec = comparison_spec(optimizers=("adamw", "lion"), learning_rates=(2e-3, 1e-3), seeds=range(3))
    store.experiments.submit(spec)
    for lease, loss in zip(store.start_next(5), (3.0, 1.0, 2.0, 1.0, 5.0), strict=True):
        store.attempts.finish(lease.run_id, 1, lease.token, result(final_val_loss=loss))
    for key, sign in product(SORT_KEYS, ("", "-")):
        pages = [store.runs.page(sort=f"{sign}{key}", limit=2)]
        while pages[-1] and len(pages) < 10:
            pages.append(store.runs.page(sort=f"{sign}{key}", limit=2, after=pages[-1][-1].id))
        records = [run for page in pages for run in page]
        assert len(records) == len({run.id for run in records}) == 12, (key, sign)
        values = [getattr(run, key) for run in records]
        known = sorted((value for value in values if value is not None), reverse=sign == "-")
        assert values == known + [None] * (12 - len(known)), (key, sign)


def test_progress_counts_steps_pace_and_time_left(store: Store) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2, 3), steps=100)).experiment
    assert experiment.progress == Progress(steps_done=0, steps_total=300, tokens_per_second=None, seconds_left=None)
    leases = store.start_next(2)
    for lease in leases:
        store.attempts.heartbeat(lease.run_id, 1, lease.token, Heartbeat(step=25, device_seconds=50))
        store.attempts.append_points(lease.run_id, 1, lease.token, batch(0, [25]))
    # 2 s a step, 250 steps left, two runs at work.
    assert store.experiments.get(experiment.id).progress == Progress(
        steps_done=50, steps_total=300, tokens_per_second=2 * 1024 / 0.05, seconds_left=250.0
    )


def test_steps_that_an_ended_run_never_took_are_neither_done_nor_left(store: Store) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2), steps=100)).experiment
    lease = store.start()
    store.attempts.finish(lease.run_id, 1, lease.token, result(steps=7, final_val_loss=None))
    progress = store.experiments.get(experiment.id).progress
    assert (progress.steps_done, progress.steps_total) == (7, 107)
    record = store.experiments.apply(experiment.id, RunAction.CANCEL)
    assert (record.progress.steps_done, record.progress.seconds_left) == (7, 0.0)
    assert record.counts.done()
    assert record.ended_at is not None


def test_versions_grow_with_every_visible_change_and_only_then(store: Store) -> None:
    quiet = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
    versions = [store.monitor.version()]

    def changed() -> bool:
        versions.append(store.monitor.version())
        return versions[-1] > versions[-2]

    experiment = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
    assert changed()
    store.experiments.apply(quiet.id, RunAction.CANCEL)
    assert changed()
    earlier_versions = store.experiments.version(quiet.id), store.experiments.version(experiment.id)
    (lease,) = store.claim(cpus=1, gpus=0, limit=1)
    assert changed()
    store.attempts.hello(lease.run_id, 1, lease.token)
    assert changed()
    store.attempts.heartbeat(lease.run_id, 1, lease.token, Heartbeat(step=1))
    assert changed()
    store.attempts.append_points(lease.run_id, 1, lease.token, batch(0, [1]))
    assert changed()
    store.attempts.finish(lease.run_id, 1, lease.token, result())
    assert changed()
    store.runs.page()
    store.queue.reap()
    store.claim(cpus=1, gpus=0, limit=1)
    assert not changed()
    assert store.experiments.version(quiet.id) == earlier_versions[0]
    assert store.experiments.version(experiment.id) > earlier_versions[1]


def test_a_distributed_run_gets_through_its_steps_with_all_of_its_processes(store: Store) -> None:
    """Two processes that have each taken 5 s for 5 of 10 steps take 5 s more."""
    experiment = store.experiments.submit(comparison_spec(seeds=(1,), gpus=2)).experiment
    lease = store.start()
    store.attempts.heartbeat(lease.run_id, 1, lease.token, Heartbeat(step=5, device_seconds=10.0))
    assert store.experiments.get(experiment.id).progress.seconds_left == 5.0


def test_device_time_of_today_is_that_of_the_runs_and_no_other_days(store: Store) -> None:
    day, evening = 86_400, 86_400 - 7_200
    store.database.clock_offset_seconds += (evening - store.monitor.activity().now) % day
    for _ in range(2):
        store.experiments.submit(comparison_spec(seeds=(1,)))
    first, silent = store.claim(cpus=64, limit=2)
    store.attempts.hello(first.run_id, 1, first.token)
    store.attempts.hello(silent.run_id, 1, silent.token)
    store.database.clock_offset_seconds += 20
    store.attempts.heartbeat(first.run_id, 1, first.token, Heartbeat(step=1, device_seconds=20.0))

    def today() -> float:
        return store.monitor.activity().device_seconds_today

    def of_runs() -> float:
        return sum(run.device_seconds for run in store.runs.page())

    assert today() == of_runs() == 20.0
    store.pass_time(120)  # the reaper waits after it has slept; then it gives the silent one up
    assert store.runs.get(silent.run_id).status is not RunStatus.RUNNING
    assert today() == pytest.approx(of_runs())
    first_seconds = today()
    store.database.clock_offset_seconds += (evening + 3_600 - store.monitor.activity().now) % day
    third = store.start()
    store.database.clock_offset_seconds += 4_800  # 3,600 of them before midnight
    store.attempts.finish(third.run_id, 2, third.token, result(device_seconds=4_000.0))
    assert of_runs() == pytest.approx(first_seconds + 4_000, abs=2)
    assert today() == pytest.approx(1_000, abs=2)
    store.database.clock_offset_seconds += day
    assert today() == 0
