"""The clients' listening: a turn for every change that an experiment's live stream tells, across broken connections.

A connection that breaks is made again and shows the id of the last event heard (`Last-Event-ID`): the service then
tells what was missed, once, or nothing where nothing has happened.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator

import httpx2

from api.client.messages import ClientError, refusal, segment, unreachable_error, wait_seconds

LONGEST_PAUSE_SECONDS = 10.0
SILENCE_SECONDS = 45.0
"""The service sends a comment every 15 seconds: who hears nothing for so long has no connection any more."""


class StreamState:
    """What a listener knows from one connection to the next: what it heard last, and how often none could be made."""

    def __init__(self, experiment_id: str, *, retries: int, pause_seconds: float) -> None:
        """A connection that cannot be made is tried `retries` times more, after pauses that double."""
        self.path = f"/v1/experiments/{segment(experiment_id)}/stream"
        self._retries = retries
        self._first_pause_seconds = pause_seconds
        self._failures = 0
        self._last_event_id: str | None = None

    def headers(self) -> dict[str, str]:
        """What the next connection shows."""
        return {} if self._last_event_id is None else {"Last-Event-ID": self._last_event_id}

    def is_new(self, event: httpx2.ServerSentEvent) -> bool:
        """Whether the event tells a change, and none that was told before; the connection stands, that is certain."""
        self._failures = 0
        new = event.event == "changed" and event.id != self._last_event_id
        if new:
            self._last_event_id = event.id
        return new

    def pause_after(self, error: ClientError, asked_seconds: float | None = None) -> float:
        """How long to wait before the next connection; raises the error where too many in a row could not be made."""
        if self._failures >= self._retries:
            raise error
        pause_seconds: float = min(self._first_pause_seconds * 2**self._failures, LONGEST_PAUSE_SECONDS)
        self._failures += 1
        return max(pause_seconds, asked_seconds or 0.0)


def changes(http: httpx2.Client, line: StreamState) -> Generator[None, None, None]:
    """A turn for the state that the stream begins with, and one for each change; without an end of its own.

    Raises `ClientError` where the service refuses, or cannot be reached any more.
    """
    while True:
        asked_seconds = None
        try:
            with http.sse(line.path, headers=line.headers(), timeout=_timeout(http)) as events:
                if not events.response.is_success:
                    events.response.read()
                    asked_seconds = _requested_pause(events.response)
                else:
                    for event in events:
                        if line.is_new(event):
                            yield
            error = unreachable_error(str(http.base_url), ConnectionError("the stream has ended"))
        except httpx2.TransportError as cause:
            error = unreachable_error(str(http.base_url), cause)
        time.sleep(line.pause_after(error, asked_seconds))


async def async_changes(http: httpx2.AsyncClient, line: StreamState) -> AsyncGenerator[None, None]:
    """As `changes`, to be awaited."""
    while True:
        asked_seconds = None
        try:
            async with http.sse(line.path, headers=line.headers(), timeout=_timeout(http)) as events:
                if not events.response.is_success:
                    await events.response.aread()
                    asked_seconds = _requested_pause(events.response)
                else:
                    async for event in events:
                        if line.is_new(event):
                            yield
            error = unreachable_error(str(http.base_url), ConnectionError("the stream has ended"))
        except httpx2.TransportError as cause:
            error = unreachable_error(str(http.base_url), cause)
        await asyncio.sleep(line.pause_after(error, asked_seconds))


def listener(http: httpx2.Client) -> httpx2.AsyncClient:
    """An asynchronous client of the same service, with the same key."""
    return httpx2.AsyncClient(
        base_url=http.base_url,
        headers=http.headers,
        timeout=http.timeout,
        trust_env=http.trust_env,
        verify=http.base_url.scheme == "https",
    )


def _requested_pause(response: httpx2.Response) -> float:
    """How long a refused listener is asked to wait; raises `ClientError` where waiting would not help."""
    if (asked := wait_seconds(response)) is None:
        raise refusal(response)
    return asked


def _timeout(http: httpx2.Client | httpx2.AsyncClient) -> httpx2.Timeout:
    usual = http.timeout
    read_seconds = max(usual.read or 0.0, SILENCE_SECONDS)
    return httpx2.Timeout(connect=usual.connect, read=read_seconds, write=usual.write, pool=usual.pool)
