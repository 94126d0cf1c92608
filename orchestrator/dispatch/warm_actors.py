"""Warm actors: while nothing waits, every node keeps processes that have imported what an attempt needs.

    keep() ──► Ray starts an actor on each node with room, which imports ──► take() ──► it carries out one attempt

Each serves a single attempt and ends with it, so peak memory and device time are those of a fresh process. A warm actor
holds the CPUs and GPUs of the newest run's shape while it waits; whatever else is started on its node ends it first.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from orchestrator.dispatch.attempt_actor import AttemptActor
from orchestrator.store.queue.capacity import Node, NodeId

log = structlog.get_logger(__name__)

KEEP_SECONDS: Final = 600.0
"""How long after the newest start: a node that nobody uses is given back, to Ray's autoscaler for instance."""
CREATION_SECONDS: Final = 1.0
"""Ray creates an actor within half a second where there is room for it."""
PING_SECONDS: Final = 1.0
"""A warm actor that does not answer within this is not taken; one that lives answers within milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What one process of a run occupies."""

    cpus: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class WarmActor:
    """One that waits, or has just been taken."""

    actor: Any
    name: str
    shape: Shape
    created: Any
    """Ray's reference to its first answer."""
    prepared: Any
    """Ray's reference to the end of its imports."""


@dataclass
class WarmActors:
    """Those of one dispatcher: so many on each node."""

    per_node: int
    detached: bool
    """Whether they outlive this process, as attempts do that may come to run in them."""
    _shape: Shape | None = None
    _started_at: float = 0.0
    _waiting: dict[NodeId, list[WarmActor]] = field(default_factory=lambda: defaultdict(list))

    def keep(self, free: Sequence[Node]) -> None:
        """Nothing waits: start what is missing where there is room. `free` is what is left of every node."""
        if self._shape is None or time.monotonic() - self._started_at > KEEP_SECONDS:
            self.close()
            return
        for gone in self._waiting.keys() - {node.id for node in free}:
            self.leave(gone)
        for node in free:
            self._fill_node(node, self._shape)

    def take(self, node: NodeId, shape: Shape) -> WarmActor | None:
        """One of that shape on that node, for a run that starts; None, and room for it, where there is none."""
        self._shape, self._started_at = shape, time.monotonic()
        while self._waiting[node]:
            warm = self._waiting[node].pop()
            if warm.shape == shape and _is_alive(warm):
                return warm
            _end(warm)
        return None

    def leave(self, node: NodeId) -> None:
        """End those of a node."""
        for warm in self._waiting.pop(node, ()):
            _end(warm)

    def close(self) -> None:
        """End all."""
        for node in tuple(self._waiting):
            self.leave(node)

    def _fill_node(self, node: Node, shape: Shape) -> None:
        """So many of that shape, and none of another one, on a node of which this is left."""
        if any(warm.shape != shape for warm in self._waiting[node.id]):
            self.leave(node.id)
        here = self._waiting[node.id]
        room = node.subtract(len(here) * shape.cpus, len(here) * shape.gpus)
        while len(here) < self.per_node and room.holds(shape.cpus, shape.gpus):
            here.append(self._start(node.id, shape))
            room = room.subtract(shape.cpus, shape.gpus)

    def _start(self, node: NodeId, shape: Shape) -> WarmActor:
        name = f"warm-{secrets.token_hex(8)}"
        actor = new_actor(name, node, shape, detached=self.detached, soft=False)
        log.info("a warm actor starts", actor=name, node=node, cpus=shape.cpus, gpus=shape.gpus)
        created = actor.process_id.remote()
        return WarmActor(
            actor=actor, name=name, shape=shape, created=created, prepared=actor.prepare.remote(shape.gpus)
        )


def new_actor(name: str, node: NodeId, shape: Shape, *, detached: bool, soft: bool) -> Any:
    """A fresh process on that node; `soft`: where the node has died since it was chosen, on any other one."""
    import ray  # after `ray_runner.py` has set its environment
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=shape.cpus, num_gpus=shape.gpus)(AttemptActor)
    return remote.options(
        name=name,
        lifetime="detached" if detached else None,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=soft),
        max_restarts=0,
        max_task_retries=0,
    ).remote()


def _is_alive(warm: WarmActor) -> bool:
    """Whether it lives. One that still imports would answer too late: its attempt waits for it like for a cold one."""
    import ray  # after `ray_runner.py` has set its environment

    try:
        ready, _ = ray.wait([warm.prepared], timeout=0)
        if ready:
            ray.get([warm.prepared, warm.actor.process_id.remote()], timeout=PING_SECONDS)
    except (ray.exceptions.RayError, ImportError) as error:
        log.warning("a warm actor does not answer", actor=warm.name, error=type(error).__name__)
        return False
    return True


def end_actor(actor: Any, created: Any) -> None:
    """Kill an actor once it has answered for the first time (`created`; None: it has).

    A worker that is just creating one does not know it yet and ignores Ray's order: it lives on without an actor, and
    Ray never gives its CPUs and GPUs to another one.
    """
    import ray  # after `ray_runner.py` has set its environment

    if created is not None:
        ray.wait([created], timeout=CREATION_SECONDS)
    ray.kill(actor, no_restart=True)


def _end(warm: WarmActor) -> None:
    end_actor(warm.actor, warm.created)
