"""The dispatcher: claims runs from the queue, starts each as one attempt on a runner, and settles what ended.

    queue ──claim──► Dispatcher ──start──► Runner (Ray)        the worker itself reports to the api;
      ▲                 │  ▲                  │                the dispatcher only learns that a process ended,
      └──release, reap──┘  └──────ended───────┘                and releases the lease if nobody else did

It changes state through fenced calls alone: whatever it believes about a process, a lease that has moved on stays
untouched.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from orchestrator.errors import StoreError
from orchestrator.jobs import AttemptOutcome, Lease, RunId
from orchestrator.store.queue import Queue

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.25
"""A waiting run starts within this long of a free slot; ten empty ticks cost about a millisecond of SQL."""

REAP_SECONDS = 1.0
"""Leases last 30 s; looking for expired ones more often than this would only cost."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a runner can give to runs, in all."""

    cpus: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An attempt whose process is known to have ended."""

    lease: Lease
    interrupted: bool
    """It left because it was asked to; this does not count against the run."""
    message: str


class Runner(Protocol):
    """The port to what executes attempts. Every method returns at once or within about a second."""

    def capacity(self) -> Capacity:
        """What there is in all, occupied or not."""

    def start(self, lease: Lease) -> None:
        """Start one attempt in a process of its own."""

    def ended(self) -> Sequence[Ended]:
        """Attempts that ended since the last call. Where it is not certain that a process is dead, it is not told."""

    def kill(self, run_id: RunId, attempt: int) -> None:
        """End the process of an attempt now; one that is unknown is no fault."""

    def close(self, grace_seconds: float) -> Sequence[Ended]:
        """Ask every attempt to write a checkpoint and leave; after the grace time end them all. Returns them."""


class Dispatcher:
    """One loop over one queue and one runner."""

    def __init__(
        self,
        queue: Queue,
        runner: Runner,
        service_answers: Callable[[], bool] = lambda: True,
        hindrance: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`service_answers` tells whether workers can reach the api: while they cannot, silence proves nothing.
        `hindrance` tells why nothing may be begun now, a full disk for instance; None where everything may."""
        self._hindrance, self._told_hindrance = hindrance, ""
        self._queue = queue
        self._runner = runner
        self._service_answers = service_answers
        self._started: dict[tuple[RunId, int], Lease] = {}
        self._unsettled: list[Ended] = []
        """Told by the runner, not yet by us to the queue: a database that is away must not make us forget them."""
        self._reaped_at = -REAP_SECONDS

    def recover(self) -> None:
        """At the start of an embedded service no process of an earlier one is alive: give its runs back at once."""
        if interrupted := self._queue.interrupt_all():
            log.info("runs of an earlier service go on", runs=interrupted)

    def run(self, stop: threading.Event) -> None:
        """Tick until `stop` is set. A database that is away for a while is waited for, not died of."""
        while not stop.wait(TICK_SECONDS):
            try:
                self.tick()
            except StoreError as error:
                log.warning("database unreachable, trying again", error=str(error))

    def tick(self) -> None:
        """One round: settle what ended, reap what expired, end what must not go on, start what fits."""
        self._settle(self._runner.ended())
        self._reap()
        self._end_overdue()
        if not self._is_hindered():
            self._fill()

    def close(self, grace_seconds: float = 10.0) -> None:
        """Stop all attempts; their runs wait in the queue for the next start."""
        self._settle(self._runner.close(grace_seconds))

    def _settle(self, ended: Sequence[Ended]) -> None:
        for each in ended:
            self._started.pop((each.lease.run_id, each.lease.attempt), None)
        self._unsettled += ended
        while self._unsettled:
            self._release(self._unsettled[0])
            del self._unsettled[0]

    def _release(self, ended: Ended) -> None:
        lease = ended.lease
        outcome = AttemptOutcome.INTERRUPTED if ended.interrupted else AttemptOutcome.LOST
        released = self._queue.release(lease.run_id, lease.attempt, lease.token, outcome, ended.message)
        log.info("attempt ended", run=lease.run_id, attempt=lease.attempt, message=ended.message, released=released)

    def _reap(self) -> None:
        """Take the leases that ran out, and end their processes: one that hangs would keep its place for ever."""
        if time.monotonic() - self._reaped_at < REAP_SECONDS or not self._service_answers():
            return
        for run_id, attempt in self._queue.reap():
            log.warning("attempt lost: no sign of life", run=run_id, attempt=attempt)
            self._end(run_id, attempt)
        self._reaped_at = time.monotonic()

    def _end_overdue(self) -> None:
        for run_id, attempt in self._queue.overdue_cancels():
            self._end(run_id, attempt)
            # Without the token: an earlier dispatcher may have started it.
            self._queue.release(run_id, attempt, None, AttemptOutcome.LOST, "ended after the grace time")
            log.info("attempt ended after the grace time", run=run_id, attempt=attempt)

    def _end(self, run_id: RunId, attempt: int) -> None:
        self._runner.kill(run_id, attempt)
        self._started.pop((run_id, attempt), None)

    def _is_hindered(self) -> bool:
        reason = self._hindrance() or ""
        if reason and not self._told_hindrance:
            log.warning("nothing is begun for now", reason=reason)
        self._told_hindrance = reason
        return bool(reason)

    def _fill(self) -> None:
        total = self._runner.capacity()
        self._queue.mark_unschedulable(cpus=total.cpus, gpus=total.gpus)
        used_cpus = sum(lease.spec.resources.cpus for lease in self._started.values())
        used_gpus = sum(lease.spec.resources.gpus for lease in self._started.values())
        free_cpus, free_gpus = total.cpus - used_cpus, total.gpus - used_gpus
        if free_cpus <= 0:
            return
        for lease in self._queue.claim(cpus=free_cpus, gpus=free_gpus, limit=free_cpus):
            self._started[lease.run_id, lease.attempt] = lease
            log.info("attempt starts", run=lease.run_id, attempt=lease.attempt)
            self._runner.start(lease)
