"""Experiments that come together are stored as if they had come one by one."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError

from orchestrator.errors import ConflictError, IdempotencyError, MissingDataError, StoreError
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest
from orchestrator.kinds.scaling import ScalingSpec, Size, TokenBudget
from orchestrator.records import RunFilter, Submission
from orchestrator.services.experiments import Proposal
from orchestrator.store import ids, reads, series
from orchestrator.store.database import Database
from orchestrator.store.queue import submission
from orchestrator.store.queue.submission import LARGE_RUNS, Submittal, submit_together
from tests.contract.conftest import Store
from tests.factories.services import make_services
from tests.factories.stores import batch, comparison_spec


def test_a_new_experiment_is_answered_as_it_is_read(store: Store) -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=(1, 2, 3))
    for each in (spec, spec.model_copy(update={"priority": 7})):
        submission = store.experiments.submit(each)
        assert submission.created
        assert submission.experiment == store.experiments.get(submission.experiment.id)


def test_runs_read_back_have_the_specifications_that_were_planned(store: Store) -> None:
    """The part that they share is read once and is still all there."""
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(1e-3, 2e-3), seeds=(1, 2))
    submission = store.experiments.submit(spec)
    runs = store.runs.page(experiment_id=submission.experiment.id)
    specs = [run.spec for run in runs if run.spec]
    assert specs == [planned.spec for planned in spec.first_runs()]
    assert [each.content_hash() for each in specs] == [planned.spec.content_hash() for planned in spec.first_runs()]
    assert all(each.workload is specs[0].workload for each in specs)


def test_each_of_a_group_gets_its_own_answer(store: Store) -> None:
    """A key that comes twice makes one experiment; with another specification it is refused, and nobody else is."""
    one, other = comparison_spec(name="one"), comparison_spec(name="other")
    calls = [
        Submittal.from_spec(one, "b"),
        Submittal.from_spec(one, None),
        Submittal.from_spec(one, "b"),
        Submittal.from_spec(other, "b"),
        Submittal.from_spec(other, "a"),
    ]
    first, keyless, again, refused, last = submit_together(store.database, calls)
    assert isinstance(first, tuple) and isinstance(keyless, tuple) and isinstance(again, tuple)
    assert isinstance(last, tuple)
    assert again == (first[0], None)
    assert isinstance(refused, IdempotencyError)
    assert len({first[0], keyless[0], last[0]}) == 3
    assert {each.id for each in store.experiments.page()} == {first[0], keyless[0], last[0]}
    assert all(answer[1] == store.experiments.get(answer[0]) for answer in (first, keyless, last))


def test_what_is_wrong_with_one_of_a_group_refuses_no_other(store: Store) -> None:
    """Data that only a person can bring, a key that is taken, and a fault that nobody foresaw."""
    spec = comparison_spec(seeds=(1,))
    own = spec.workload.data.model_copy(update={"dataset": "own/texts"})
    homeless = spec.model_copy(update={"workload": spec.workload.model_copy(update={"data": own})})
    other = spec.model_copy(update={"name": "other"})
    proposals = [
        Proposal(spec=each, key=key) for each, key in ((spec, "a"), (homeless, None), (other, "a"), (spec, "a"))
    ]
    made, missing, refused, again = store.experiments.submit_together(proposals)
    assert isinstance(made, Submission) and isinstance(again, Submission)
    assert (made.created, again.created) == (True, False)
    assert made.experiment == again.experiment == store.experiments.get(made.experiment.id)
    assert isinstance(missing, MissingDataError) and isinstance(refused, IdempotencyError)

    fine = Submittal.from_spec(spec, None)
    before, broken, after = submit_together(store.database, [fine, replace(fine, spec_hash=None), fine])  # type: ignore[arg-type]
    assert isinstance(broken, IntegrityError)
    assert isinstance(before, tuple) and isinstance(after, tuple)
    assert {each.id for each in store.experiments.page()} == {made.experiment.id, before[0], after[0]}


def test_a_store_that_is_away_refuses_all_of_a_group_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def away(_database: Database, submittals: Sequence[Submittal], _most_waiting: int | None) -> None:
        asked.append(len(submittals))
        raise StoreError("away")

    monkeypatch.setattr(submission, "_store_together", away)
    with pytest.raises(StoreError):
        store.experiments.submit_together([Proposal(spec=comparison_spec())] * 3)
    assert asked == [3], "and is not asked for each of them"


def test_only_what_is_quick_is_submitted_with_others(store: Store) -> None:
    small, large = comparison_spec(seeds=(1,)), comparison_spec(seeds=range(LARGE_RUNS + 1))
    assert store.experiments.is_quick(small) and not store.experiments.is_quick(large)
    scaling = ScalingSpec(
        name="sizes",
        sizes=(Size(model="gpt2-tiny"),),
        budgets=(TokenBudget(tokens=20_480),),
        workload=small.workload,
        candidates=small.candidates,
        seeds=(1,),
    )
    assert not store.experiments.is_quick(scaling), "each of its cells is planned"
    away = make_services(store.database, dataset_url="s3://bucket/data")
    assert not away.experiments.is_quick(small), "a storage may take its time to answer"


def test_those_of_a_group_take_turns_as_if_they_had_come_one_by_one(store: Store) -> None:
    """Two runs each: first one of each experiment, then the other, whether anything waited before or not."""
    specs = [comparison_spec(name=name, seeds=(1, 2)) for name in ("a", "b", "c")]
    for _ in range(2):
        submit_together(store.database, [Submittal.from_spec(spec, None) for spec in specs])
        leases = store.claim(cpus=64, limit=6)
        names = [store.experiments.get(lease.run_id.rpartition("-")[0]).name for lease in leases]
        assert (sorted(names[:3]), sorted(names[3:])) == (["a", "b", "c"], ["a", "b", "c"])
        submit_together(store.database, [Submittal.from_spec(comparison_spec(name="before", seeds=(1,)), None)])
        store.claim(cpus=64, limit=6)


def test_many_threads_submit_at_once_and_each_experiment_is_there_once(store: Store) -> None:
    """Half of them send the same keys, one of them an experiment that is large."""
    small = comparison_spec(name="small", seeds=(1,))
    large = comparison_spec(name="large", optimizers=("adamw",), seeds=range(LARGE_RUNS + 1))
    calls = [(small, f"key {number % 4}") for number in range(8)] + [(small, None)] * 8 + [(large, None)]
    with ThreadPoolExecutor(len(calls)) as threads:
        answers = list(threads.map(lambda call: store.experiments.submit(*call), calls))
    assert sum(answer.created for answer in answers) == 4 + 8 + 1
    ids = {answer.experiment.id for answer in answers}
    assert ids == {each.id for each in store.experiments.page()}
    with store.database.reading() as connection:
        page = reads.run_page(connection, where=RunFilter(), sort=None, limit=None, after=None)
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
    asked = [lease.run_id for lease in leases]
    with store.database.reading() as connection:
        found = {id: list(columns.points()) for id, columns in series.read_many(connection, asked, ("train_loss",))}
        alone = {id: list(series.read(connection, id, ("train_loss",)).points()) for id in asked}
    assert found == {id: points for id, points in alone.items() if points}
    assert len(found) == 3


def key_of(store: Store, label: str) -> str:
    return store.keyring.create(KeyRequest(label=label)).key.id


def proposal(by: str | None, runs: int) -> Proposal:
    return Proposal(spec=comparison_spec(seeds=range(runs)), by=by)


def outcome(answer: Submission | Exception) -> str:
    return str(answer) if isinstance(answer, Exception) else "taken"


def test_a_key_has_so_many_waiting_runs_and_no_more(store: Store) -> None:
    """What is refused leaves nothing behind; what began, was answered before, or is another's takes no room."""
    ada, bob = key_of(store, "Ada"), key_of(store, "Bob")
    store.experiments.most_waiting = 5
    made = store.experiments.submit(comparison_spec(seeds=range(3)), "first", by=ada)
    proposals = [proposal(ada, 3), proposal(ada, 2), proposal(bob, 5), proposal(None, 9)]
    refused, *others = store.experiments.submit_together(proposals)
    assert [outcome(each) for each in others] == ["taken"] * 3
    assert isinstance(refused, ConflictError)
    assert "may have 5 runs that wait to be begun, and has room for 2 more; this experiment has 3" in str(refused)
    assert len(store.experiments.page(limit=9)) == 4
    again = store.experiments.submit(comparison_spec(seeds=range(3)), "first", by=ada)
    assert again.experiment.id == made.experiment.id
    with pytest.raises(ConflictError, match="room for 0 more"):
        store.experiments.submit(comparison_spec(seeds=(1,)), by=ada)
    begun = store.claim(cpus=1, limit=1)[0].run_id
    assert begun.startswith(made.experiment.id)
    store.experiments.submit(comparison_spec(seeds=(1,)), by=ada)
    store.experiments.apply(made.experiment.id, RunAction.CANCEL)
    store.experiments.submit(comparison_spec(seeds=(1, 2)), by=ada)


def test_submissions_at_once_do_not_pass_the_limit_together(store: Store) -> None:
    ada = key_of(store, "Ada")
    store.experiments.most_waiting = 10
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: store.experiments.submit_together([proposal(ada, 3)])[0], range(8)))
    assert sum(isinstance(each, Submission) for each in answers) == 3
