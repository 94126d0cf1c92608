"""The order of the queue, on SQLite and PostgreSQL: priority, turns between experiments, runs that no node can hold."""

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.jobs import RunAction
from orchestrator.records import QueuePosition
from orchestrator.store.leadership import Leadership
from orchestrator.store.queue.capacity import Node, NodeId
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec, result


def submit(store: Store, name: str, runs: int, priority: int = 0) -> None:
    spec = comparison_spec(name=name, seeds=tuple(range(runs)))
    store.experiments.submit(spec.model_copy(update={"priority": priority}))


def started(store: Store, limit: int) -> list[str]:
    """The names and positions of the next runs."""
    names = {experiment.id: experiment.name for experiment in store.experiments.page()}
    leases = store.start_next(limit)
    for lease in leases:
        store.attempts.finish(lease.run_id, lease.attempt, lease.token, result())
    return [f"{names[id]}{int(position)}" for id, _, position in (lease.run_id.partition("-") for lease in leases)]


def test_a_small_experiment_takes_turns_with_a_large_one(store: Store) -> None:
    """The large one was first and is under way; the small one is through after as many of its runs."""
    submit(store, "large", 50)
    started(store, 10)
    submit(store, "small", 3)
    assert started(store, 7) == ["large10", "small0", "large11", "small1", "large12", "small2", "large13"]


def test_a_waiting_run_knows_its_place_in_the_order_in_which_runs_are_claimed(store: Store) -> None:
    submit(store, "usual", 3)
    submit(store, "urgent", 2, priority=1)
    submit(store, "newcomer", 2)
    places = {run.id: store.runs.queue_position(run.id) for run in store.runs.page()}
    assert {position.waiting for position in places.values()} == {7}
    order = sorted(places, key=lambda id: places[id].position or 0)
    assert [places[id].position for id in order] == list(range(1, 8))
    assert [lease.run_id for lease in store.claim(cpus=99, limit=99)] == order


def test_the_estimate_is_the_pace_of_the_last_runs(store: Store) -> None:
    """Two at work, 60 s a run: a place every 30 s, as long as a dispatcher begins them."""
    submit(store, "runs", 5)
    nothing_known = store.runs.queue_position(store.runs.page()[4].id)
    assert nothing_known == QueuePosition(position=5, waiting=5, starts_in_seconds=None)
    first = store.claim(cpus=1, limit=1)[0]
    store.attempts.hello(first.run_id, 1, first.token)
    store.database.clock_offset_seconds += 60
    store.attempts.finish(first.run_id, 1, first.token, result())
    store.claim(cpus=2, limit=2)
    not_begun = QueuePosition(position=2, waiting=2, starts_in_seconds=None)
    assert store.runs.queue_position(store.runs.page()[4].id) == not_begun
    dispatcher = Leadership(store.database, "this one")
    assert dispatcher.hold()
    standing = store.runs.queue_position(store.runs.page()[4].id)
    assert (standing.position, standing.waiting) == (2, 2)
    assert standing.starts_in_seconds == pytest.approx(60, abs=5)
    assert [run.starts_in_seconds for run in store.monitor.activity().waiting] == pytest.approx([30, 60], abs=5)
    dispatcher.resign()
    assert store.runs.queue_position(store.runs.page()[4].id) == not_begun
    assert [run.starts_in_seconds for run in store.monitor.activity().waiting] == [None, None]


def test_what_does_not_wait_has_no_place(store: Store) -> None:
    submit(store, "runs", 3)
    working, paused, waiting = (run.id for run in store.runs.page())
    store.claim(cpus=1, limit=1)
    store.runs.apply(paused, RunAction.PAUSE)
    nowhere = QueuePosition(position=None, waiting=1, starts_in_seconds=None)
    assert [store.runs.queue_position(run_id) for run_id in (working, paused)] == [nowhere, nowhere]
    store.queue.mark_unschedulable([Node(id=NodeId("gpu only"), cpus=0, gpus=8)])
    assert store.runs.queue_position(waiting) == QueuePosition(position=None, waiting=0, starts_in_seconds=None)
    with pytest.raises(NotFoundError, match="there is no run"):
        store.runs.queue_position("nothing")
