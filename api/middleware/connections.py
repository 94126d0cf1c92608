"""Bound the connections of the api process: their number, and how long each may keep the process waiting.

uvicorn waits without limit for the rest of a request's head, for any size of it, and for clients that do not read
their answer. This module closes connections that send too slowly, and closes the longest silent one when a new one
needs room, so that idle clients block nobody.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""The time until a request's head is whole, from the connection's start or the answer before; bodies: `guards.py`."""
HEAD_BYTES = 64 * 2**10
"""Browsers and proxies send a few KiB."""
UNREAD_SECONDS = 60.0
"""The time limit of an answer that the client hardly reads."""
TAKEN_BYTES = 16 * 2**10
"""The bytes that the client must read meanwhile."""
MOST_CONNECTIONS = 2_048
"""Two hundred pages and a thousand workers; at 64 KiB that the server reads ahead, 128 MiB."""

FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with an end to all waiting."""

    most_connections = MOST_CONNECTIONS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    @property
    def quiet_since(self) -> float | None:
        """Return since when it waits for its next request, on the loop's clock; None while one is answered."""
        return self._head_timer.when() - HEAD_SECONDS if self._head_timer is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the head of a request, or refuse the connection if there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type]  # a transport of asyncio's streams
        if not self._make_room():
            self.transport.write(FULL)
            self.transport.close()
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_waiting()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head, the trailers of a body, or what comes beside an answer is too large."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes <= HEAD_BYTES or self.transport.is_closing():
            return
        if self._head_timer is None:  # in the middle of a request or an answer, there is nothing to say
            self.transport.abort()
        else:
            self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is whole."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Leave a piece of the body out of the head's bytes; `guards.py` bounds bodies."""
        self._head_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Count the bytes of a head anew: the body is whole."""
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next head, and for the unread rest of a body."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._wait_for_head()

    def pause_writing(self) -> None:
        """Give the client `UNREAD_SECONDS` to read on."""
        super().pause_writing()
        self._await_reader()

    def _await_reader(self) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(UNREAD_SECONDS, self._look_at_reader, left_bytes)

    def _look_at_reader(self, left_bytes: int) -> None:
        """Wait again for a client that reads, however slowly; else close its connection."""
        if left_bytes - self.transport.get_write_buffer_size() < TAKEN_BYTES:
            self.transport.abort()
        else:
            self._await_reader()

    def resume_writing(self) -> None:
        """Resume writing, since the client reads again."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _make_room(self) -> bool:
        """Return whether there is room for this connection, for which the one that has said nothing for the longest
        time is closed where all are taken."""
        others = [
            connection
            for connection in self.connections
            if isinstance(connection, BoundedProtocol) and connection is not self
        ]
        if len(others) < self.most_connections:
            return True
        quiet = [
            connection
            for connection in others
            if connection.quiet_since is not None and not connection.transport.is_closing()
        ]
        if not quiet:
            return False
        min(quiet, key=lambda connection: connection.quiet_since or 0.0).transport.abort()
        return True
