"""`TransactionBatcher`: calls of many threads carried out together, sharing one transaction and its forced write.

    thread ─┐
    thread ─┼─► queue ─► the first one carries out all that waits, then hands on to the first one that came meanwhile
    thread ─┘

A commit that is forced to disk costs milliseconds, whatever is in it. A thread that comes alone waits for nobody; those
that come while a commit is under way make up the next one. Nobody is answered before the commit. A call that would have
to wait for a lock is refused there, and carried out by its own thread: all others would wait with it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from orchestrator.errors import OrchestratorError, StoreError

Call = TypeVar("Call")
Answer = TypeVar("Answer")

MOST_CALLS = 64
"""The most calls in one transaction; at 64 the forced write is a small part of the work, and readers of the rows wait
no longer."""
GATHER_SECONDS = 0.0005
"""The time that the first of a group waits for the others that came with it the last time: 32 threads that all come
back made pairs of transactions, of 1 and of 31 calls, without it. One that comes alone waits once and then not
again."""


Answers = Sequence[Answer | OrchestratorError]


class _PendingCall(Generic[Call, Answer]):
    """A thread's call; `done` is a lock that is released when it has an answer, or its thread's turn has come."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_settled = False
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class TransactionBatcher(Generic[Call, Answer]):
    """Callable from any number of threads.

    `together` carries out calls in one transaction and returns the answer of each, or the error that refuses this one
    alone. What it raises rolls all of them back; then each is tried by itself, so that only the guilty one fails.
    """

    def __init__(
        self,
        run_batch: Callable[[Sequence[Call]], Answers[Answer]],
        individually: Callable[[Sequence[Call]], Answers[Answer]] | None = None,
    ) -> None:
        """`individually` carries out a call that `run_batch` has refused, which had no time to wait for locks."""
        self._together, self._individually = run_batch, individually
        self._queue: list[_PendingCall[Call, Answer]] = []
        self._busy = False
        self._company = 1
        """How many were carried out together the last time."""
        self._guard = threading.Lock()

    def __call__(self, call: Call) -> Answer:
        """Carry out one call; raises what refuses it."""
        pending = _PendingCall[Call, Answer](call)
        with self._guard:
            self._queue.append(pending)
            follows, self._busy = self._busy, True
        if follows:
            pending.done.acquire()
        if not pending.is_settled:
            self._lead()
        is_refused = isinstance(pending.error, OrchestratorError) and not isinstance(pending.error, StoreError)
        if self._individually and is_refused:
            pending.error = None
            self._carry_out([pending], self._individually)
        if pending.error is not None:
            raise pending.error
        return pending.answer  # type: ignore[return-value]  # set where there is no error

    def _lead(self) -> None:
        """Carry out what waits, wake its threads, and the next one to lead if more came meanwhile."""
        if len(self._queue) < self._company:
            time.sleep(GATHER_SECONDS)
        with self._guard:
            batch, self._queue = self._queue[:MOST_CALLS], self._queue[MOST_CALLS:]
            self._company = len(batch)
        self._carry_out(batch, self._together)
        with self._guard:
            self._busy = bool(self._queue)
            released = [*batch, *self._queue[:1]]
        for pending in released:
            pending.done.release()

    def _carry_out(
        self, batch: list[_PendingCall[Call, Answer]], action: Callable[[Sequence[Call]], Answers[Answer]]
    ) -> None:
        try:
            answers = action([pending.call for pending in batch])
        except BaseException as error:  # noqa: BLE001 - handed to the threads that wait for it
            if len(batch) > 1 and isinstance(error, Exception) and not isinstance(error, StoreError):
                for pending in batch:
                    self._carry_out([pending], action)
                return
            for pending in batch:
                pending.error, pending.is_settled = error, True
            return
        for pending, answer in zip(batch, answers, strict=True):
            if isinstance(answer, OrchestratorError):
                pending.error = answer
            else:
                pending.answer = answer
            pending.is_settled = True
