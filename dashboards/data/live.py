"""Live pages: one event stream a page that says only "something changed".

The page then asks for itself again, so that what is shown is always what the server would render. A listener that waits
holds no thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import ServerSentEvent

INTERVAL_SECONDS = 0.7
"""Shortest time between two events: quick enough to feel live, slow enough to read."""
RECONNECT_MILLISECONDS = 2000


async def new_versions(
    read: Callable[[], int], since: int | None, *, stopping: Callable[[], bool]
) -> AsyncIterator[int]:
    """Yield each version after `since`, looked up every `INTERVAL_SECONDS`, until the process is `stopping`."""
    last_version = since
    while not stopping():
        version = await run_in_threadpool(read)
        if version != last_version:
            last_version = version
            yield version
        await asyncio.sleep(INTERVAL_SECONDS)


async def changes(
    read: Callable[[], int], since: int | None, *, ended: Callable[[], bool], stopping: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent]:
    """Yield `changed` for each version after `since`, and `done` once nothing will change any more.

    `ended` is asked at the start and after each change only: an end is itself a change. The stream breaks off without
    `done` when the process is `stopping`: listeners then come back to the next one.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MILLISECONDS)
    if await run_in_threadpool(ended) and await run_in_threadpool(read) == since:
        yield ServerSentEvent(event="done", data=since)
        return
    async for version in new_versions(read, since, stopping=stopping):
        yield ServerSentEvent(event="changed", id=str(version), data=version)
        if await run_in_threadpool(ended):
            yield ServerSentEvent(event="done", data=version)
            return
