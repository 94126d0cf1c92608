"""Submission: each experiment once, whole or not at all, within the limits of its key."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import ConflictError, MissingDataError
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest
from orchestrator.store import ids, reads, series
from orchestrator.store.queue import submission
from tests.contract.conftest import Store
from tests.factories.stores import batch, comparison_spec


def test_a_new_experiment_is_answered_as_it_is_read(store: Store) -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=(1, 2, 3))
    for variant in (spec, spec.model_copy(update={"priority": 7})):
        submission = store.experiments.submit(variant)
        assert submission.created
        assert submission.experiment == store.experiments.get(submission.experiment.id)


def test_runs_read_back_have_the_specifications_that_were_planned(store: Store) -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(1e-3, 2e-3), seeds=(1, 2))
    submission = store.experiments.submit(spec)
    runs = store.runs.page(experiment_id=submission.experiment.id)
    specs = [run.spec for run in runs if run.spec]
    assert specs == [planned.spec for planned in spec.first_runs()]
    assert [spec.content_hash() for spec in specs] == [planned.spec.content_hash() for planned in spec.first_runs()]


def test_a_fault_that_nobody_foresaw_leaves_nothing_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = comparison_spec(seeds=(1,))
    monkeypatch.setattr(submission, "new_id", lambda: None)
    with pytest.raises(IntegrityError):
        store.experiments.submit(spec, "a")
    monkeypatch.undo()
    assert store.experiments.page() == ()
    assert store.experiments.submit(spec, "a").created


def test_data_that_only_a_person_can_bring_must_be_there(store: Store) -> None:
    spec = comparison_spec(seeds=(1,))
    data = spec.workload.data.model_copy(update={"dataset": "own/texts"})
    with pytest.raises(MissingDataError):
        store.experiments.submit(spec.model_copy(update={"workload": spec.workload.model_copy(update={"data": data})}))
    assert store.experiments.page() == ()


def test_many_threads_submit_at_once_and_each_experiment_is_there_once(store: Store) -> None:
    """Half of them send the same keys."""
    small = comparison_spec(name="small", seeds=(1,))
    large = comparison_spec(name="large", optimizers=("adamw",), seeds=range(101))
    calls = [(small, f"key {number % 4}") for number in range(8)] + [(small, None)] * 8 + [(large, None)]
    with ThreadPoolExecutor(len(calls)) as threads:
        answers = list(threads.map(lambda call: store.experiments.submit(*call), calls))
    assert sum(answer.created for answer in answers) == 4 + 8 + 1
    ids = {answer.experiment.id for answer in answers}
    assert ids == {experiment.id for experiment in store.experiments.page()}
    with store.database.reading() as connection:
        page = reads.run_page(connection)
    assert len(page) == 12 * len(small.first_runs()) + len(large.first_runs())


def test_series_of_many_runs_are_those_of_each(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "IDS_AT_ONCE", 2)
    store.experiments.submit(comparison_spec(seeds=(1, 2, 3, 4), steps=100))
    leases = store.claim(cpus=64, limit=5)
    for count, lease in enumerate(leases[:4]):
        store.attempts.hello(lease.run_id, lease.attempt, lease.token)
        for number in range(count):
            sent = batch(number, range(3 * number, 3 * number + 3), loss=float(count))
            store.attempts.append_points(lease.run_id, lease.attempt, lease.token, sent)
    run_ids = [lease.run_id for lease in leases]
    with store.database.reading() as connection:
        points_by_run = {
            id: list(columns.points()) for id, columns in series.read_many(connection, run_ids, ("train_loss",))
        }
        single_points = {id: list(series.read(connection, id, ("train_loss",)).points()) for id in run_ids}
    assert points_by_run == {id: points for id, points in single_points.items() if points}
    assert len(points_by_run) == 3


def key_of(store: Store, label: str) -> str:
    return store.keyring.create(KeyRequest(label=label)).key.id


def test_a_key_has_so_many_waiting_runs_and_no_more(store: Store) -> None:
    """What is refused leaves nothing behind; what began, was answered before, or is another's takes no room."""
    ada, bob = key_of(store, "Ada"), key_of(store, "Bob")
    store.experiments.most_waiting = 5
    receipt = store.experiments.submit(comparison_spec(seeds=range(3)), "first", by=ada)
    with pytest.raises(ConflictError, match=r"may have 5 waiting runs, and has room for 2 more; this experiment has 3"):
        store.experiments.submit(comparison_spec(seeds=range(3)), by=ada)
    for key, runs in ((ada, 2), (bob, 5), (None, 9)):
        store.experiments.submit(comparison_spec(seeds=range(runs)), by=key)
    assert len(store.experiments.page(limit=9)) == 4
    repeat = store.experiments.submit(comparison_spec(seeds=range(3)), "first", by=ada)
    assert repeat.experiment.id == receipt.experiment.id
    with pytest.raises(ConflictError, match="room for 0 more"):
        store.experiments.submit(comparison_spec(seeds=(1,)), by=ada)
    begun = store.claim(cpus=1, limit=1)[0].run_id
    assert begun.startswith(receipt.experiment.id)
    store.experiments.submit(comparison_spec(seeds=(1,)), by=ada)
    store.experiments.apply(receipt.experiment.id, RunAction.CANCEL)
    store.experiments.submit(comparison_spec(seeds=(1, 2)), by=ada)


def test_submissions_at_once_do_not_pass_the_limit_together(store: Store) -> None:
    ada = key_of(store, "Ada")
    store.experiments.most_waiting = 10

    def is_accepted(_: int) -> bool:
        try:
            return store.experiments.submit(comparison_spec(seeds=range(3)), by=ada).created
        except ConflictError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(is_accepted, range(8))) == 3
