"""Live pages: one event stream a page that says only "something changed".

The page then asks for itself again, so that what is shown is always what the server would render. Listeners share one
look at the version, however many they are, and no listener holds a thread.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import ServerSentEvent

INTERVAL_SECONDS = 0.7
"""Shortest time between two events: quick enough to feel live, slow enough to read."""
RECONNECT_MILLISECONDS = 2000


class Pulse:
    """The versions of what pages show, each read at most once in `INTERVAL_SECONDS`."""

    def __init__(self, read: Callable[[str], int]) -> None:
        self._read = read
        self._seen: dict[str, tuple[float, int]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def version(self, key: str) -> int:
        """The newest version of `key` that is no older than the interval."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            taken, version = self._seen.get(key, (-INTERVAL_SECONDS, 0))
            if time.monotonic() - taken >= INTERVAL_SECONDS:
                version = await run_in_threadpool(self._read, key)
                self._seen[key] = (time.monotonic(), version)
            return version


async def changes(
    pulse: Pulse, key: str, since: int | None, *, ended: Callable[[str], bool], stopping: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent]:
    """Yield `changed` for each version after `since`, and `done` once nothing will change any more.

    `ended` is asked at the start and after each change only: an end is itself a change. The stream breaks off without
    `done` when the process is `stopping`: listeners then come back to the next one.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MILLISECONDS)
    seen, first = since, True
    while not stopping():
        version = await pulse.version(key)
        changed = version != seen
        if changed:
            seen = version
            yield ServerSentEvent(event="changed", id=str(version), data=version)
        if (changed or first) and await run_in_threadpool(ended, key):
            yield ServerSentEvent(event="done", data=version)
            return
        first = False
        await asyncio.sleep(INTERVAL_SECONDS)
