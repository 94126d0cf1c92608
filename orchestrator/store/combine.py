"""`Combined`: calls of many threads carried out together, so that they share one transaction and its forced write.

    thread ─┐
    thread ─┼─► queue ─► whoever gets the turn carries out all that waits ─► each thread gets its own answer
    thread ─┘

A commit that is forced to disk costs milliseconds, whatever is in it. A thread that comes alone waits for nobody; those
that come while a commit is under way make up the next one. Nobody is answered before the commit.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.errors import OrchestratorError, StoreError

Call = TypeVar("Call")
Answer = TypeVar("Answer")

MOST_CALLS = 64
"""In one transaction; at 64 the forced write is a small part of the work, and readers of the rows wait no longer."""


@dataclass
class _Waiting(Generic[Call, Answer]):
    call: Call
    done: bool = False
    answer: Answer | None = None
    error: BaseException | None = None


class Combined(Generic[Call, Answer]):
    """Callable from any number of threads.

    `together` carries out calls in one transaction and returns the answer of each, or the error that refuses this one
    alone. What it raises rolls all of them back; then each is tried by itself, so that only the guilty one fails.
    """

    def __init__(self, together: Callable[[Sequence[Call]], Sequence[Answer | OrchestratorError]]) -> None:
        self._together = together
        self._queue: deque[_Waiting[Call, Answer]] = deque()
        self._turn = threading.Lock()

    def __call__(self, call: Call) -> Answer:
        """Carry out one call; raises what refuses it."""
        mine = _Waiting[Call, Answer](call)
        self._queue.append(mine)
        with self._turn:
            while not mine.done:
                self._carry_out([self._queue.popleft() for _ in range(min(len(self._queue), MOST_CALLS))])
        if mine.error is not None:
            raise mine.error
        return mine.answer  # type: ignore[return-value]  # set where there is no error

    def _carry_out(self, batch: list[_Waiting[Call, Answer]]) -> None:
        try:
            answers = self._together([each.call for each in batch])
        except BaseException as error:  # noqa: BLE001 - handed to the threads that wait for it
            if len(batch) > 1 and isinstance(error, Exception) and not isinstance(error, StoreError):
                for each in batch:
                    self._carry_out([each])
                return
            for each in batch:
                each.error, each.done = error, True
            return
        for each, answer in zip(batch, answers, strict=True):
            if isinstance(answer, OrchestratorError):
                each.error = answer
            else:
                each.answer = answer
            each.done = True
