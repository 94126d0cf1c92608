"""`ThreadBatcher`: calls that come at once are carried out together on one thread, so that they cost one turn of it.

    request ─┐
    request ─┼─► what waits ─► a thread carries out all of it ─► each gets its answer, and what came meanwhile is next
    request ─┘

A turn of a thread for each of sixteen requests costs more than their work: each hands the interpreter's lock around.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fastapi.concurrency import run_in_threadpool

from orchestrator.records import Submission
from orchestrator.services.experiments import Experiments, Proposal

Call = TypeVar("Call")
Answer = TypeVar("Answer")

MOST_CALLS = 64
"""Together; those behind them wait no longer than that takes."""
LARGE_AT_ONCE = 4
"""Experiments of many runs that are queued at once: each computes on a thread of its own."""


class ThreadBatcher(Generic[Call, Answer]):
    """To be awaited by any number of tasks of an event loop.

    `together` carries out calls on a thread and returns the answer of each, or what refuses this one alone; what it
    raises all of them are answered with.
    """

    def __init__(self, together: Callable[[Sequence[Call]], Sequence[Answer | Exception]]) -> None:
        self._together = together
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[Call, asyncio.Future[Answer]]]] = {}
        """By the loop that carries them out: there is one, but in tests."""
        self._working: set[asyncio.Task[None]] = set()
        """A loop itself does not keep its tasks."""

    async def __call__(self, call: Call) -> Answer:
        """Have one call carried out; raises what refuses it."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        if loop in self._waiting:
            self._waiting[loop].append((call, answered))
        else:
            self._waiting[loop] = [(call, answered)]
            working = loop.create_task(self._work(loop))  # of its own: a caller who leaves takes no other's call along
            self._working.add(working)
            working.add_done_callback(self._working.discard)
        return await answered

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Carry out what waits, and what comes meanwhile, until nothing does."""
        waiting = self._waiting[loop]
        try:
            while batch := waiting[:MOST_CALLS]:
                del waiting[:MOST_CALLS]
                answers: Sequence[Answer | Exception]
                try:
                    answers = await run_in_threadpool(self._together, [call for call, _ in batch])
                except Exception as error:  # noqa: BLE001 - each caller's answer
                    answers = [error] * len(batch)
                for (_, answered), answer in zip(batch, answers, strict=True):
                    if answered.done():  # its caller has left
                        continue
                    if isinstance(answer, Exception):
                        answered.set_exception(answer)
                    else:
                        answered.set_result(answer)
        finally:
            del self._waiting[loop]


class Submissions:
    """Where the routes submit experiments: small ones that come at once share a thread and a transaction; a large one
    has its own, of which there are `LARGE_AT_ONCE`."""

    def __init__(self, experiments: Experiments) -> None:
        self._experiments = experiments
        self._together = ThreadBatcher[Proposal, Submission](experiments.submit_together)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def __call__(self, proposal: Proposal) -> Submission:
        """Queue an experiment durably; raises as `Experiments.submit`."""
        if self._experiments.is_quick(proposal.spec):
            return await self._together(proposal)
        async with self._large:
            (answer,) = await run_in_threadpool(self._experiments.submit_together, [proposal])
        if isinstance(answer, Exception):
            raise answer
        return answer
