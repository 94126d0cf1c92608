"""Warm actors on a real Ray of two CPUs: who gets them, what ends them, and that each carries out one attempt."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.dispatch import warm_actors
from orchestrator.dispatch.ray_runner import start_embedded_ray, stop_embedded_ray
from orchestrator.dispatch.warm_actors import Shape, WarmActors
from orchestrator.store.queue.capacity import Node, NodeId
from tests.factories.waiting import until

ONE_CPU, TWO_CPUS = Shape(cpus=1, gpus=0), Shape(cpus=2, gpus=0)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def here(embedded_ray_folder: Path) -> Iterator[Node]:
    """The node of an embedded Ray."""
    start_embedded_ray(embedded_ray_folder, 2)
    import ray  # it reads its settings when it is imported

    yield Node(id=NodeId(ray.nodes()[0]["NodeID"]), cpus=2, gpus=0)
    stop_embedded_ray(embedded_ray_folder)


@pytest.fixture
def warm() -> Iterator[WarmActors]:
    kept = WarmActors(1, detached=False)
    yield kept
    kept.close()
    until(lambda: names() == set(), "all actors have ended")


def test_nothing_is_kept_before_the_first_start(here: Node, warm: WarmActors) -> None:
    """Whose shape nobody knows yet."""
    warm.keep([here])
    assert names() == set()


def test_a_run_gets_the_process_that_has_imported_already(here: Node, warm: WarmActors) -> None:
    """And the next one does not get it again: there is another one once it is asked for."""
    import ray

    assert warm.take(here.id, ONE_CPU) is None
    warm.keep([here])
    warm.keep([here])
    (name,) = names()
    process = process_of(name)
    taken = warm.take(here.id, ONE_CPU)
    assert taken is not None and taken.name == name
    assert ray.get(taken.prepared) is None, "it has imported"
    assert ray.get(taken.actor.process_id.remote()) == process
    warm.keep([here.subtract(1, 0)])
    assert len(names()) == 2
    ray.kill(taken.actor)


def test_room_that_runs_occupy_is_left_alone(here: Node, warm: WarmActors) -> None:
    """An actor without room would wait in Ray, and make a cluster grow."""
    warm.take(here.id, TWO_CPUS)
    warm.keep([here.subtract(1, 0)])
    assert names() == set()


def test_a_run_of_another_shape_gets_its_room(here: Node, warm: WarmActors) -> None:
    """The warm one is ended, so that a larger actor starts on the same node."""
    import ray

    warm.take(here.id, ONE_CPU)
    warm.keep([here])
    assert warm.take(here.id, TWO_CPUS) is None
    larger = warm_actors.new_actor("larger", here.id, TWO_CPUS, detached=False, soft=False)
    assert ray.get(larger.process_id.remote(), timeout=60) > 0
    assert names() == {"larger"}
    ray.kill(larger)


def test_an_actor_ends_once_it_is_created(here: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's order to end passes over a worker that is just creating its actor, whose CPU would never be free again."""
    import ray

    class Slow:
        def __init__(self, done: Path) -> None:
            time.sleep(0.3)
            done.touch()

        def process_id(self) -> int:
            return 0

    monkeypatch.setattr(warm_actors, "CREATION_SECONDS", 60.0)
    slow = ray.remote(num_cpus=1)(Slow).remote(tmp_path / "created")
    warm_actors.end_actor(slow, slow.process_id.remote())
    assert (tmp_path / "created").exists()
    until(lambda: ray.available_resources().get("CPU") == 2.0, "both CPUs are free again")


def test_one_of_a_shape_that_is_not_wanted_any_more_is_replaced(here: Node, warm: WarmActors) -> None:
    """The newest run says what the next one will probably need."""
    warm.take(here.id, ONE_CPU)
    warm.keep([here])
    (small,) = names()
    warm.take(NodeId("another"), TWO_CPUS)
    warm.keep([here])
    until(lambda: len(names()) == 1 and names() != {small}, "the large one alone is there")


def test_a_dead_one_is_not_taken(here: Node, warm: WarmActors, caplog: pytest.LogCaptureFixture) -> None:
    """Its attempt would be lost, and count against the run. It is not replaced in haste either: it may die again."""
    import ray

    warm.take(here.id, ONE_CPU)
    warm.keep([here])
    (name,) = names()
    process_of(name)  # it has imported
    ray.kill(ray.get_actor(name))
    until(lambda: names() == set(), "it has ended")
    warm.keep([here])
    assert names() == set()
    assert warm.take(here.id, ONE_CPU) is None


def test_none_outlives_a_node_or_its_time(here: Node, warm: WarmActors, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is gone is forgotten; ten minutes after the newest start all are given back."""
    warm.take(here.id, ONE_CPU)
    warm.keep([here])
    warm.keep([])
    until(lambda: names() == set(), "it has ended with its node")
    warm.keep([here])
    assert len(names()) == 1
    monkeypatch.setattr(warm_actors, "KEEP_SECONDS", 0.0)
    warm.keep([here])
    until(lambda: names() == set(), "its time is over")


def names() -> set[str]:
    import ray

    return set(ray.util.list_named_actors())


def process_of(name: str) -> Any:
    """Answered once it has imported: calls are carried out one after the other."""
    import ray

    return ray.get(ray.get_actor(name).process_id.remote(), timeout=120)
