"""Live pages: one event stream a page that says only "something changed".

The page then asks for itself again, so that what is shown is always what the server would render. Listeners share one
look at the version, however many they are, and no listener holds a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import ServerSentEvent

INTERVAL_SECONDS = 0.7
"""Shortest time between two events: quick enough to feel live, slow enough to read."""
RECONNECT_MILLISECONDS = 2000


class Pulse:
    """The versions of what pages show, each read once in `INTERVAL_SECONDS` for all that listen: they wait for the same
    look."""

    def __init__(self, read: Callable[[str], int]) -> None:
        self._read = read
        self._looks: dict[str, asyncio.Task[int]] = {}

    async def version(self, key: str) -> int:
        """Return the version of `key` now."""
        return await run_in_threadpool(self._read, key)

    async def next(self, key: str) -> int:
        """Return the version of `key` at the next look, for which all listeners wait together."""
        look = self._looks.get(key)
        if look is None or look.done():
            look = self._looks[key] = asyncio.create_task(self._look(key))
            # Its error is nobody's loss if all who waited for it have gone.
            look.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(look)

    async def _look(self, key: str) -> int:
        try:
            await asyncio.sleep(INTERVAL_SECONDS)
            return await self.version(key)
        finally:
            del self._looks[key]


async def changes(
    pulse: Pulse, key: str, since: int | None, *, ended: Callable[[str], bool], stopping: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent]:
    """Yield `changed` for each version after `since`, and `done` once nothing will change any more.

    `ended` is asked at the start and after each change only: an end is itself a change. The stream breaks off without
    `done` when the process is `stopping`: listeners then come back to the next one.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MILLISECONDS)
    last_version, first = since, True
    while not stopping():
        version = await (pulse.version(key) if first else pulse.next(key))
        changed = version != last_version
        if changed:
            last_version = version
            yield ServerSentEvent(event="changed", id=str(version), data=version)
        if (changed or first) and await run_in_threadpool(ended, key):
            yield ServerSentEvent(event="done", data=version)
            return
        first = False
