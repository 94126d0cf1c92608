"""Ray as the runner: every attempt is one actor in a process of its own; our table owns retries, so all of Ray's are 0.

A process of its own makes the peak memory of a run its own: nothing of an earlier run is left in it. An embedded Ray
ends with its dispatcher, and so do its actors. On a cluster that was there before, actors are detached: they outlive
the dispatcher, and the next one adopts them by name. Ray reads its environment while it is imported, and this imports
it: `ray_process.py` comes first.
"""

import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
import structlog
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.dispatch.attempt_actor import NEVER_STARTED, AttemptActor
from orchestrator.dispatch.dispatcher import EndedAttempt
from orchestrator.dispatch.placements import EndedPlacements
from orchestrator.errors import ClusterError
from orchestrator.jobs import Lease, LiveAttempt, RunId
from orchestrator.store.queue.capacity import Node, NodeId, ProcessGroupShape

log = structlog.get_logger(__name__)

MESSAGE_CHARACTERS = 500

NODE_DIED = "the machine that trained it was lost, or Ray on it"

CREATION_SECONDS = 1.0
"""Ray creates an actor within half a second where there is room for it."""

BLAMELESS = frozenset({"terminated", NEVER_STARTED})
"""Words of attempts that do not count as failures of the run."""


@dataclass(frozen=True, kw_only=True)
class _LiveActor:
    run_id: RunId
    attempt: int
    node: NodeId | None
    """The node on which it started."""
    actor: Any
    process_id: Any
    outcome: Any
    may_have_placement: bool
    """Whether Ray Train may have set room aside for it."""


class RayRunner:
    """The runner on an initialised Ray; `detached` where that Ray outlives this process."""

    def __init__(self, service_url: str, *, detached: bool = False) -> None:
        self._service_url = service_url
        self._detached = detached
        self._placements = EndedPlacements()
        self._started: dict[tuple[RunId, int], _LiveActor] = {}
        self._out_of_sight: set[tuple[RunId, int]] = set()

    def nodes(self) -> Sequence[Node]:
        """Return the nodes alive. Raises `ClusterError` if an embedded Ray has lost its only one: it gets no
        other."""
        alive = tuple(
            Node(
                id=NodeId(node["NodeID"]),
                cpus=int(node["Resources"].get("CPU", 0)),
                gpus=int(node["Resources"].get("GPU", 0)),
            )
            for node in ray.nodes()
            if node["Alive"]
        )
        if not alive and not self._detached:
            raise ClusterError("the raylet of the embedded Ray has died, and all attempts with it; Ray must start anew")
        return alive

    def start(self, lease: Lease, node: NodeId) -> None:
        """Create an actor and call it; returns at once."""
        wants = lease.spec.resources
        group = None
        if wants.process_count() > 1:
            group = ProcessGroupShape(processes=wants.process_count(), cpus=wants.cpus, gpu=wants.gpus > 0)
        # The actor of a distributed run only launches and waits: its processes take the room that was set aside.
        cpus, gpus = (wants.cpus, wants.gpus) if group is None else (0, 0)
        name = _actor_name(lease.run_id, lease.attempt)
        self._call(lease, node, new_actor(name, node, cpus=cpus, gpus=gpus, detached=self._detached), group)

    def address(self) -> str:
        """Return the address at which other processes join this Ray."""
        return str(ray.get_runtime_context().gcs_address)

    def adopt(self, live: Sequence[LiveAttempt]) -> Sequence[LiveAttempt]:
        """Take over detached actors by their names; an embedded Ray is new and has none."""
        if not self._detached:
            return ()
        names = set(ray.util.list_named_actors())
        adopted = {_actor_name(live_attempt.run_id, live_attempt.attempt): live_attempt for live_attempt in live}
        adopted_names = names & adopted.keys()
        for name in adopted_names:
            self._take_over(name, adopted[name])
        for name in names - adopted_names:  # what an earlier dispatcher left and nobody waits for any more
            try:
                ray.kill(ray.get_actor(name), no_restart=True)
            except ValueError:
                log.info("an actor was gone already", actor=name)
        return tuple(adopted[name] for name in sorted(adopted_names))

    def collect_ended(self) -> Sequence[EndedAttempt]:
        """Return the attempts whose call returned or whose actor is certainly dead."""
        self._placements.free(self._started.keys())
        return self._collect(timeout_seconds=0)

    def kill(self, run_id: RunId, attempt: int) -> None:
        """End the process within milliseconds, by `ray.kill`."""
        self._out_of_sight.discard((run_id, attempt))
        if (started := self._forget(run_id, attempt)) is not None:
            end_actor(started.actor, started.process_id)

    def close(self, grace_seconds: float) -> Sequence[EndedAttempt]:
        """Send SIGTERM to every worker, which writes a checkpoint and returns; then `ray.kill` for the rest.

        However an attempt ends now, it is our doing: all of them are reported as interrupted. Detached ones go on.
        """
        if self._detached:
            self._started.clear()
            self._out_of_sight.clear()
            return ()
        self._signal_all()
        settled: list[EndedAttempt] = []
        deadline = time.monotonic() + grace_seconds
        while self._started and time.monotonic() < deadline:
            settled += self._collect(timeout_seconds=0.2)
        for run_id, attempt in list(self._started):
            stopped = "the service was stopped"
            settled.append(EndedAttempt(run_id=run_id, attempt=attempt, interrupted=True, message=stopped))
            self.kill(run_id, attempt)
        return [replace(ended, interrupted=True) for ended in settled]

    def _forget(self, run_id: RunId, attempt: int) -> _LiveActor | None:
        """Forget an ended attempt; returns its actor, if known."""
        started = self._started.pop((run_id, attempt), None)
        if started is not None and started.may_have_placement:
            self._placements.watch(run_id, attempt)
        return started

    def _call(self, lease: Lease, node: NodeId, actor: Any, group: ProcessGroupShape | None = None) -> None:
        gpus = lease.spec.resources.gpus
        self._started[lease.run_id, lease.attempt] = _LiveActor(
            run_id=lease.run_id,
            attempt=lease.attempt,
            node=node,
            actor=actor,
            process_id=actor.process_id.remote(),
            outcome=actor.execute.remote(self._service_url, lease.run_id, lease.attempt, lease.token, gpus, group),
            may_have_placement=group is not None,
        )

    def _take_over(self, name: str, live: LiveAttempt) -> None:
        """Hold on to a living actor: its answer comes once it has carried out what it is doing."""
        actor = ray.get_actor(name)
        self._started[live.run_id, live.attempt] = _LiveActor(
            run_id=live.run_id,
            attempt=live.attempt,
            node=NodeId(live.node) if live.node else None,
            actor=actor,
            process_id=None,
            outcome=actor.last_word.remote(),
            may_have_placement=True,
        )

    def _collect(self, timeout_seconds: float) -> list[EndedAttempt]:
        by_outcome = {
            started.outcome: started for key, started in self._started.items() if key not in self._out_of_sight
        }
        hidden = [self._started[key] for key in tuple(self._out_of_sight) if key in self._started]
        lost = [self._lose_with_node(started) for started in hidden if _has_died(started.node)]
        if not by_outcome:
            time.sleep(0.0 if lost else timeout_seconds)
            return lost
        ready, _ = ray.wait(list(by_outcome), num_returns=len(by_outcome), timeout=timeout_seconds)
        settled = [self._settle(by_outcome[reference]) for reference in ready]
        return lost + [ended for ended in settled if ended is not None]

    def _lose_with_node(self, started: _LiveActor) -> EndedAttempt:
        """Return the end of an attempt whose machine is gone, which is not the run's fault."""
        self.kill(started.run_id, started.attempt)
        return replace(_ended_attempt(started, interrupted=True, message=NODE_DIED), node_died=True)

    def _settle(self, started: _LiveActor) -> EndedAttempt | None:
        """Return the end of an attempt; None if Ray itself does not know it, and the lease must decide."""
        key = started.run_id, started.attempt
        try:
            word = ray.get(started.outcome)
        except ray.exceptions.RayError as error:
            if isinstance(error, ray.exceptions.RayActorError) and _has_died(started.node):
                return self._lose_with_node(started)
            if isinstance(error, ray.exceptions.ActorUnavailableError):
                log.warning("an attempt is out of sight; its lease decides", run=started.run_id, error=str(error))
                self._out_of_sight.add(key)
                return None
            self._forget(*key)
            ended = _ended_attempt(started, interrupted=False, message=_describe(error))
            return replace(ended, out_of_memory=isinstance(error, ray.exceptions.OutOfMemoryError))
        self.kill(*key)
        return _ended_attempt(started, interrupted=word in BLAMELESS, message=f"the worker said: {word}")

    def _signal_all(self) -> None:
        """Send SIGTERM to every worker that runs on this machine and has reported its process."""
        by_reference = {started.process_id: started for started in self._started.values()}
        if not by_reference:
            return
        ready, _ = ray.wait(list(by_reference), num_returns=len(by_reference), timeout=1.0)
        for reference in ready:
            try:
                os.kill(ray.get(reference), signal.SIGTERM)
            except (ray.exceptions.RayError, ProcessLookupError) as error:
                log.info("no process to signal", run=by_reference[reference].run_id, error=_describe(error))


def new_actor(name: str, node: NodeId, *, cpus: int, gpus: int, detached: bool) -> Any:
    """Return a fresh process that occupies so much of that node; where the node has died since it was chosen, of
    another."""
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus)(AttemptActor)
    return remote.options(
        name=name,
        lifetime="detached" if detached else None,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        max_restarts=0,
        max_task_retries=0,
    ).remote()


def end_actor(actor: Any, created: Any) -> None:
    """Kill an actor once it has answered for the first time (`created`; None: it has).

    A worker that is just creating one does not know it yet and ignores Ray's order: it lives on without an actor, and
    Ray never gives its CPUs and GPUs to another one.
    """
    if created is not None:
        ray.wait([created], timeout=CREATION_SECONDS)
    ray.kill(actor, no_restart=True)


def _has_died(node: NodeId | None) -> bool:
    """Return whether Ray knows that the node has died. It knows before it calls an actor dead for that reason."""
    return node is not None and not any(ray_node["Alive"] and ray_node["NodeID"] == node for ray_node in ray.nodes())


def _actor_name(run_id: RunId, attempt: int) -> str:
    return f"run-{run_id}-a{attempt}"


def _ended_attempt(started: _LiveActor, *, interrupted: bool, message: str) -> EndedAttempt:
    return EndedAttempt(run_id=started.run_id, attempt=started.attempt, interrupted=interrupted, message=message)


def _describe(error: Exception) -> str:
    """Return Ray's pages of advice as a sentence."""
    text = " ".join(str(error).split())
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "the host ran out of memory, and Ray ended the worker's process"
    if isinstance(error, ray.exceptions.RayActorError):
        detail = re.search(r"exit detail: ([^.]+)", text)
        return "the worker's process was killed or crashed" + (f": {detail[1]}" if detail else "")
    return text[:MESSAGE_CHARACTERS] or type(error).__name__
