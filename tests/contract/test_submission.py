"""Experiments that come together are stored as if they had come one by one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.errors import IdempotencyError
from orchestrator.experiments import expand
from orchestrator.records import RunFilter
from orchestrator.store import reads, series
from orchestrator.store.submission import LARGE_RUNS, Submittal, submit_together
from tests.contract.conftest import Store
from tests.stores import batch, comparison_spec


def test_a_new_experiment_is_answered_as_it_is_read(store: Store) -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=(1, 2, 3))
    for each in (spec, spec.model_copy(update={"priority": 7})):
        submission = store.bench.submit(each)
        assert submission.created
        assert submission.experiment == store.bench.experiment(submission.experiment.id)


def test_runs_read_back_have_the_specifications_that_were_planned(store: Store) -> None:
    """The part that they share is read once and is still all there."""
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(1e-3, 2e-3), seeds=(1, 2))
    submission = store.bench.submit(spec)
    runs = store.bench.runs(experiment_id=submission.experiment.id)
    assert [run.spec for run in runs] == [planned.spec for planned in expand(spec)]
    assert [run.spec.content_hash() for run in runs] == [planned.spec.content_hash() for planned in expand(spec)]
    assert all(run.spec.workload is runs[0].spec.workload for run in runs)


def test_each_of_a_group_gets_its_own_answer(store: Store) -> None:
    """A key that comes twice makes one experiment; with another specification it is refused, and nobody else is."""
    one, other = comparison_spec(name="one"), comparison_spec(name="other")
    calls = [
        Submittal.of(one, "b"),
        Submittal.of(one, None),
        Submittal.of(one, "b"),
        Submittal.of(other, "b"),
        Submittal.of(other, "a"),
    ]
    first, keyless, again, refused, last = submit_together(store.database, calls)
    assert isinstance(first, tuple) and isinstance(keyless, tuple) and isinstance(again, tuple)
    assert isinstance(last, tuple)
    assert again == (first[0], None)
    assert isinstance(refused, IdempotencyError)
    assert len({first[0], keyless[0], last[0]}) == 3
    assert {each.id for each in store.bench.experiments()} == {first[0], keyless[0], last[0]}
    assert all(answer[1] == store.bench.experiment(answer[0]) for answer in (first, keyless, last))


def test_those_of_a_group_take_turns_as_if_they_had_come_one_by_one(store: Store) -> None:
    """Two runs each: first one of each experiment, then the other, whether anything waited before or not."""
    specs = [comparison_spec(name=name, seeds=(1, 2)) for name in ("a", "b", "c")]
    for _ in range(2):
        submit_together(store.database, [Submittal.of(spec, None) for spec in specs])
        leases = store.claim(cpus=64, limit=6)
        names = [store.bench.experiment(lease.run_id.rpartition("-")[0]).name for lease in leases]
        assert (sorted(names[:3]), sorted(names[3:])) == (["a", "b", "c"], ["a", "b", "c"])
        submit_together(store.database, [Submittal.of(comparison_spec(name="before", seeds=(1,)), None)])
        store.claim(cpus=64, limit=6)


def test_many_threads_submit_at_once_and_each_experiment_is_there_once(store: Store) -> None:
    """Half of them send the same keys, one of them an experiment that is large."""
    small = comparison_spec(name="small", seeds=(1,))
    large = comparison_spec(name="large", optimizers=("adamw",), seeds=range(LARGE_RUNS + 1))
    calls = [(small, f"key {number % 4}") for number in range(8)] + [(small, None)] * 8 + [(large, None)]
    with ThreadPoolExecutor(len(calls)) as threads:
        answers = list(threads.map(lambda call: store.bench.submit(*call), calls))
    assert sum(answer.created for answer in answers) == 4 + 8 + 1
    ids = {answer.experiment.id for answer in answers}
    assert ids == {each.id for each in store.bench.experiments()}
    with store.database.reading() as connection:
        page = reads.run_page(connection, where=RunFilter(), sort=None, limit=None, after=None)
    assert len(page) == 12 * len(expand(small)) + len(expand(large))


def test_series_of_many_runs_are_those_of_each(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_RUNS", 2)
    store.bench.submit(comparison_spec(seeds=(1, 2, 3, 4), steps=100))
    leases = store.claim(cpus=64, limit=5)
    for count, lease in enumerate(leases[:4]):
        store.bench.hello(lease.run_id, lease.attempt, lease.token)
        for number in range(count):
            sent = batch(number, range(3 * number, 3 * number + 3), loss=float(count))
            store.bench.append_points(lease.run_id, lease.attempt, lease.token, sent)
    asked = [lease.run_id for lease in leases]
    with store.database.reading() as connection:
        found = {id: list(columns.points()) for id, columns in series.read_many(connection, asked, ("train_loss",))}
        alone = {id: list(series.read(connection, id, ("train_loss",)).points()) for id in asked}
    assert found == {id: points for id, points in alone.items() if points}
    assert len(found) == 3
