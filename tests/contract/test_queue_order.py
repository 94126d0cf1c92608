"""Who is next, on SQLite and PostgreSQL: priority, turns between experiments, what can never be held."""

from tests.contract.conftest import Store
from tests.stores import comparison_spec, result


def submit(store: Store, name: str, runs: int, priority: int = 0) -> None:
    spec = comparison_spec(name=name, seeds=tuple(range(runs)))
    store.bench.submit(spec.model_copy(update={"priority": priority}))


def started(store: Store, limit: int) -> list[str]:
    """The names and positions of the next runs."""
    names = {experiment.id: experiment.name for experiment in store.bench.experiments()}
    leases = store.claim(cpus=999, gpus=0, limit=limit)
    for lease in leases:
        store.bench.hello(lease.run_id, lease.attempt, lease.token)
        store.bench.finish(lease.run_id, lease.attempt, lease.token, result())
    return [f"{names[id]}{int(position)}" for id, _, position in (lease.run_id.partition("-") for lease in leases)]


def test_a_small_experiment_takes_turns_with_a_large_one(store: Store) -> None:
    """The large one was first and is under way; the small one is through after as many of its runs."""
    submit(store, "large", 50)
    started(store, 10)
    submit(store, "small", 3)
    assert started(store, 7) == ["large10", "small0", "large11", "small1", "large12", "small2", "large13"]


def test_a_newcomer_does_not_overtake_for_longer_than_its_turn(store: Store) -> None:
    submit(store, "a", 30)
    started(store, 20)
    submit(store, "b", 30)
    started(store, 10)
    submit(store, "c", 30)
    assert started(store, 6) == ["a25", "b5", "c0", "a26", "b6", "c1"]


def test_a_retry_keeps_its_turn_before_an_experiment_that_came_later(store: Store) -> None:
    submit(store, "old", 2)
    leases = store.claim(cpus=9, gpus=0, limit=9)
    submit(store, "new", 3)
    store.queue.interrupt_all()
    assert len(leases) == 2
    assert started(store, 9) == ["old0", "old1", "new0", "new1", "new2"]


def test_priority_goes_before_turns(store: Store) -> None:
    submit(store, "low", 2, priority=-5)
    submit(store, "usual", 2)
    submit(store, "urgent", 2, priority=10)
    assert started(store, 9) == ["urgent0", "urgent1", "usual0", "usual1", "low0", "low1"]
