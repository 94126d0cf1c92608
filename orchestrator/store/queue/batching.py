"""`TransactionBatcher`: calls of many threads carried out together, sharing one transaction and its forced write.

    thread ─┐
    thread ─┼─► queue ─► the first one carries out all that waits, then hands on to the first one that came meanwhile
    thread ─┘

A commit that is forced to disk costs milliseconds, whatever is in it. A thread that comes alone waits for nobody; those
that come while a commit is under way make up the next one. Nobody is answered before the commit. A call that would have
to wait for somebody else's lock is carried out apart (`APART`), by its own thread: all others would wait with it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

from orchestrator.errors import OrchestratorError, StoreError

Call = TypeVar("Call")
Answer = TypeVar("Answer")

MOST_CALLS = 64
"""In one transaction; at 64 the forced write is a small part of the work, and readers of the rows wait no longer."""
GATHER_SECONDS = 0.0005
"""How long the first of a group waits for the others that came with it the last time: 32 threads that all come back
made pairs of transactions, of 1 and of 31 calls, without it. One that comes alone waits once and then not again."""


class RetryAlone(Enum):
    """An answer that is none yet."""

    APART = "apart"


APART: Final = RetryAlone.APART
"""What is answered for a call that shall be carried out by itself."""
Answers = Sequence[Answer | OrchestratorError | Literal[RetryAlone.APART]]


class _Waiting(Generic[Call, Answer]):
    """One thread's call; `woken` is a lock that is released when the call is done or its thread's turn has come."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.done = False
        self.apart = False
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.woken = threading.Lock()
        self.woken.acquire()


class TransactionBatcher(Generic[Call, Answer]):
    """Callable from any number of threads.

    `together` carries out calls in one transaction and returns the answer of each, or the error that refuses this one
    alone. What it raises rolls all of them back; then each is tried by itself, so that only the guilty one fails.
    """

    def __init__(
        self,
        together: Callable[[Sequence[Call]], Answers[Answer]],
        apart: Callable[[Sequence[Call]], Answers[Answer]] | None = None,
    ) -> None:
        """`apart` carries out what `together` answered with `APART`, one call at a time, and may wait for locks."""
        self._together, self._apart = together, apart
        self._queue: list[_Waiting[Call, Answer]] = []
        self._busy = False
        self._company = 1
        """How many were carried out together the last time."""
        self._guard = threading.Lock()

    def __call__(self, call: Call) -> Answer:
        """Carry out one call; raises what refuses it."""
        mine = _Waiting[Call, Answer](call)
        with self._guard:
            self._queue.append(mine)
            follows, self._busy = self._busy, True
        if follows:
            mine.woken.acquire()
        if not mine.done:
            self._lead()
        if mine.apart:
            self._carry_out([mine], self._apart)
        if mine.error is not None:
            raise mine.error
        return mine.answer  # type: ignore[return-value]  # set where there is no error

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
            woken = [*batch, *self._queue[:1]]
        for each in woken:
            each.woken.release()

    def _carry_out(
        self, batch: list[_Waiting[Call, Answer]], together: Callable[[Sequence[Call]], Answers[Answer]] | None
    ) -> None:
        assert together is not None, "what answers APART has a way to carry out a call apart"
        try:
            answers = together([each.call for each in batch])
        except BaseException as error:  # noqa: BLE001 - handed to the threads that wait for it
            if len(batch) > 1 and isinstance(error, Exception) and not isinstance(error, StoreError):
                for each in batch:
                    self._carry_out([each], together)
                return
            for each in batch:
                each.error, each.done = error, True
            return
        for each, answer in zip(batch, answers, strict=True):
            if answer is APART:
                each.apart = True
            elif isinstance(answer, OrchestratorError):
                each.error = answer
            else:
                each.answer = answer
            each.done = True
