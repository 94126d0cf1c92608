"""The dispatcher: claims runs from the queue, starts each as one attempt on a runner, and settles what ended.

    queue ──claim──► Dispatcher ──start──► Runner (Ray)        the worker itself reports to the api;
      ▲                 │  ▲                  │                the dispatcher only learns that a process ended,
      └──release, reap──┘  └──────ended───────┘                and releases the lease if nobody else did

It changes state through fenced calls alone: whatever it believes about a process, a lease that has moved on stays
untouched. Of several dispatchers one leads, and the others wait for its lease to run out.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from orchestrator.jobs import AttemptOutcome, Lease, LiveAttempt, RunId
from orchestrator.store.leadership import Duty, Leadership
from orchestrator.store.queue.capacity import FreeCapacity, Node, NodeId, largest_nodes
from orchestrator.store.queue.queue import Queue

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.25
"""A waiting run starts within this long of a free slot; ten empty ticks cost about a millisecond of SQL."""

REAP_SECONDS = 1.0
"""Leases last 30 s; looking for expired ones more often than this would only cost."""

GRACE_SECONDS = 10.0
"""The time for attempts whose process cannot outlive this one to write a checkpoint when it ends."""

MARK_SECONDS = 2.0
"""The interval between two searches of all waiting runs for those that no node could ever hold, behind which others
wait: with many waiting runs it is too much for every tick."""

MOST_CLAIMS = 64
"""The most claims in one transaction: the runs of a large cluster start in several ticks, each of which has settled the
ended ones."""

AttemptKey = tuple[RunId, int]
"""Run and attempt."""


@dataclass(frozen=True, kw_only=True)
class EndedAttempt:
    """An attempt whose process is known to have ended."""

    run_id: RunId
    attempt: int
    interrupted: bool
    """Whether it left because it was asked to; this does not count against the run."""
    message: str
    out_of_memory: bool = False
    """The machine had no memory left for it."""
    node_died: bool = False
    """Ray on its machine, or the machine itself, ended first."""


class Runner(Protocol):
    """The port to what executes attempts. Every method returns at once or within about a second."""

    def nodes(self) -> Sequence[Node]:
        """Return the machines that there are, occupied or not. Raises `ClusterError` if there will never be one
        again."""

    def start(self, lease: Lease, node: NodeId) -> None:
        """Start one attempt in a process of its own on that node."""

    def adopt(self, live: Sequence[LiveAttempt]) -> Sequence[LiveAttempt]:
        """Take over those attempts whose process still runs, and end every other process of an earlier dispatcher."""

    def collect_ended(self) -> Sequence[EndedAttempt]:
        """Return the attempts that ended since the last call, without those whose process may be alive."""

    def kill(self, run_id: RunId, attempt: int) -> None:
        """End the process of an attempt now; one that is unknown is not a fault."""

    def close(self, grace_seconds: float) -> Sequence[EndedAttempt]:
        """Let go of every attempt. One whose process cannot outlive this dispatcher is asked to write a checkpoint and
        to leave, is ended after the grace time, and returned; the others go on, for the next dispatcher to adopt."""


class Dispatcher(Duty):
    """The duty over one queue and one runner."""

    name = "dispatcher"
    leadership: Leadership

    def __init__(
        self,
        queue: Queue,
        runner: Runner,
        leadership: Leadership,
        service_answers: Callable[[], bool] = lambda: True,
        dispatch_blocker: Callable[[], str | None] = lambda: None,
        follow_up: Callable[[], object] = lambda: None,
    ) -> None:
        """`service_answers` says whether workers can reach the api: while they cannot, silence proves nothing.
        `dispatch_blocker` says why nothing may be begun now, a full disk for instance; None if everything may.
        `follow_up` queues what follows from runs that have ended."""
        self._follow_up = follow_up
        self._dispatch_blocker, self._is_blocker_logged = dispatch_blocker, False
        self._queue = queue
        self._runner = runner
        self.leadership = leadership
        self._service_answers = service_answers
        self._started: dict[AttemptKey, LiveAttempt] = {}
        self._unsettled: list[EndedAttempt] = []
        """Told by the runner, not yet by us to the queue: a database that is away must not make us forget them."""
        self._reaped_at = -REAP_SECONDS
        self._marked_at = -MARK_SECONDS
        self._sizes: tuple[Node, ...] = ()

    def work(self) -> float:
        """Settle what ended, reap what expired, end what must not go on, queue what follows, start what fits: again at
        once where `MOST_CLAIMS` were started, since more may fit."""
        self._settle(self._runner.collect_ended())
        self._reap()
        for run_id, attempt in self._queue.overdue_cancels():
            self._kill(run_id, attempt)
            self._queue.release(run_id, attempt, AttemptOutcome.LOST, "ended after the grace time")
            log.info("attempt ended after the grace time", run=run_id, attempt=attempt)
        self._follow_up()
        # What came before may have taken longer than our lease; nothing is begun on the strength of an old look.
        self.leadership.require()
        return 0.0 if not self._is_blocked() and self._start_runs() == MOST_CLAIMS else TICK_SECONDS

    def close(self) -> None:
        """Stop all attempts, whose runs wait in the queue for the next start."""
        self._settle(self._runner.close(GRACE_SECONDS))

    def step_back(self) -> None:
        """Let go of what we started: it is the next leader's concern, or has lost its lease."""
        self._settle(self._runner.close(0.0))
        self._started.clear()

    def take_over(self, term: int) -> None:
        """Go on with what an earlier dispatcher left: adopt what still runs, and give the other runs back at once."""
        adopted = self._runner.adopt(self._queue.live_attempts())
        self._started = {(live_attempt.run_id, live_attempt.attempt): live_attempt for live_attempt in adopted}
        interrupted = self._queue.interrupt_all(spared=self._started.keys())
        log.info("leading", term=term, adopted=len(adopted), interrupted=interrupted)

    def _settle(self, ended: Sequence[EndedAttempt]) -> None:
        for ending in ended:
            self._started.pop((ending.run_id, ending.attempt), None)
        self._unsettled += ended
        while self._unsettled:
            self._release(self._unsettled[0])
            del self._unsettled[0]

    def _release(self, ended: EndedAttempt) -> None:
        outcome = AttemptOutcome.INTERRUPTED if ended.interrupted else AttemptOutcome.LOST
        released = self._queue.release(
            ended.run_id,
            ended.attempt,
            outcome,
            ended.message,
            out_of_memory=ended.out_of_memory,
            node_died=ended.node_died,
        )
        log.info("attempt ended", run=ended.run_id, attempt=ended.attempt, message=ended.message, released=released)

    def _reap(self) -> None:
        """Take the leases that ran out, and end their processes: one that hangs would keep its place for ever. Stop
        the runs whose time is up; while nobody could notify their workers, they are left alone."""
        if time.monotonic() - self._reaped_at < REAP_SECONDS or not self._service_answers():
            return
        for run_id, attempt in self._queue.reap():
            log.warning("attempt lost: no sign of life", run=run_id, attempt=attempt)
            self._kill(run_id, attempt)
        for run_id, limit in self._queue.stop_late():
            log.info("time is up", run=run_id, limit=limit)
        self._reaped_at = time.monotonic()

    def _kill(self, run_id: RunId, attempt: int) -> None:
        self._runner.kill(run_id, attempt)
        self._started.pop((run_id, attempt), None)

    def _is_blocked(self) -> bool:
        reason = self._dispatch_blocker()
        if reason is not None and not self._is_blocker_logged:
            log.warning("nothing is begun for now", reason=reason)
        self._is_blocker_logged = reason is not None
        return self._is_blocker_logged

    def _start_runs(self) -> int:
        """Start what fits; returns how many."""
        nodes = self._runner.nodes()
        # What the cluster can never hold is passed over: at once where the cluster has changed, else now and then.
        sizes, now = largest_nodes(nodes), time.monotonic()
        if sizes != self._sizes or now - self._marked_at >= MARK_SECONDS:
            self._queue.mark_unschedulable(nodes)
            self._sizes, self._marked_at = sizes, now
        room = FreeCapacity(nodes)
        for allocation in self._started.values():
            room.occupy(NodeId(allocation.node or ""), allocation.cpus, allocation.gpus)
        claimed = self._queue.claim(room, limit=min(room.cpus(), MOST_CLAIMS))
        for lease, node in claimed:
            wants = lease.spec.resources
            self._started[lease.run_id, lease.attempt] = LiveAttempt(
                run_id=lease.run_id, attempt=lease.attempt, node=node, cpus=wants.total_cpus(), gpus=wants.gpus
            )
            log.info("attempt starts", run=lease.run_id, attempt=lease.attempt, node=node)
            self._runner.start(lease, node)
        return len(claimed)
