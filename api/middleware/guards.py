"""Middleware that looks at a request before any route does: host, origin, size.

Against DNS rebinding: only known host names are served. Against cross-site requests: an unsafe method with an
`Origin` must come from our own pages. NUL in a query is refused: PostgreSQL has no text with it, SQLite has.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.middleware.base import HttpMiddleware
from api.problems import RefusedError, negotiate

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
UNKNOWN_HOST = "This service is not known by that host name; its operator can name it in ADAPM_BENCH_ALLOWED_HOSTS."
ADDRESS = re.compile(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

KIB, MIB = 2**10, 2**20
STRANGER_BODY_BYTES = 16 * KIB
"""The largest body of a stranger: a login's form is some hundred bytes."""
USER_BODY_BYTES = 1 * MIB
"""A comparison of 64 candidates with 64 learning rates each is 100 KiB."""
WORKER_BODY_BYTES = 16 * MIB
"""10,000 points, the largest batch, are about 2 MiB; observations may come with them."""
SMALL_BODY_BYTES = 64 * KIB
"""The bytes that the server reads of any connection before the guard is asked; times the number of connections, the
memory that strangers can take."""
ROOM_BYTES = {STRANGER_BODY_BYTES: 0, USER_BODY_BYTES: 32 * MIB, WORKER_BODY_BYTES: 2 * WORKER_BODY_BYTES}
"""The memory for larger bodies, until they are answered, divided so that users take nothing from workers."""
BODY_SECONDS = 30.0
"""1 MiB at 35 KB/s; workers give up after five seconds."""
WORKER_PATH = "/v1/attempts/"


class HostAndOriginMiddleware(HttpMiddleware):
    """Refuse names that are not ours (400), unsafe requests that other sites' pages make (403), and NUL (422)."""

    def __init__(self, app: ASGIApp, allowed_hosts: tuple[str, ...]) -> None:
        super().__init__(app)
        self.allowed_hosts = frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request on, or refuse it."""
        refusal = self._refusal(scope)
        await (negotiate(refusal.response(), scope) if refusal else self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        headers = Headers(scope=scope)
        host, server = headers.get("host", ""), scope.get("server")
        # A page of another site that was pointed here by its name says that name in `Host`; scrapers and probes say the
        # number: the address that the connection came to.
        own_address = str(server[0]) if server and ADDRESS.fullmatch(str(server[0])) else None
        if host_name(host) not in self.allowed_hosts and host_name(host) != own_address:
            return RefusedError(400, "unknown-host", UNKNOWN_HOST)
        if b"%00" in scope["query_string"]:
            return RefusedError(422, "invalid", "A text in the query has the character U+0000; send it without that.")
        origin = headers.get("origin")
        if origin is None or scope.get("method") in SAFE_METHODS or _is_same_address(origin, host):
            return None
        return RefusedError(403, "cross-site", "Pages of other sites may not change anything here.")


class BodyLimitMiddleware(HttpMiddleware):
    """Read a body whole before a route sees it, and before it takes a thread: no larger than its caller may send (413),
    no slower than `BODY_SECONDS` (408), and only where there is room for it beside the others (503)."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self._room_bytes = dict(ROOM_BYTES)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request with its whole body, or refuse it."""
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "0")
        if declared == "0" and "transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return
        limit = scope.get("bench.body_bytes", USER_BODY_BYTES)  # the guard has found out who sends it
        size = int(declared[:20]) if declared != "0" and declared.isdecimal() else limit
        try:
            with self._reserve(size, limit):
                body = await _read(receive, limit)
                if body is not None:
                    await self.app(scope, replay(body, receive), send)
        except RefusedError as refusal:
            await negotiate(refusal.response(), scope)(scope, receive, send)

    @contextmanager
    def _reserve(self, size: int, limit: int) -> Iterator[None]:
        """Reserve memory for a body until it is answered. Raises `RefusedError`."""
        if size > limit:
            raise size_refusal(limit)
        reserved = size if size > SMALL_BODY_BYTES else 0
        if reserved > self._room_bytes[limit]:
            detail = "Too many large bodies are being read at once; send it again."
            raise RefusedError(503, "busy", detail, {"Retry-After": "1"})
        self._room_bytes[limit] -= reserved
        try:
            yield
        finally:
            self._room_bytes[limit] += reserved


def size_refusal(limit_bytes: int) -> RefusedError:
    """Return the refusal of a body above `limit_bytes`."""
    limit = f"{limit_bytes // MIB} MiB" if limit_bytes >= MIB else f"{limit_bytes // KIB} KiB"
    return RefusedError(413, "too-large", f"The body is larger than {limit}, the most that is read.")


def host_name(host: str) -> str:
    """Return the name in a `Host` header: without port, without the brackets of an IPv6 address, in lower case.

    Empty where the header is not a host with an optional port.
    """
    match = HOST.fullmatch(host.lower())
    return match["name"].strip("[]") if match else ""


def _is_same_address(origin: str, host: str) -> bool:
    """Return whether `origin` is the very address that the request went to; another port of this machine is not."""
    parts = urlsplit(origin)
    default_port = {"http": ":80", "https": ":443"}.get(parts.scheme)
    if default_port is None:
        return False
    return parts.netloc.lower().removesuffix(default_port) == host.lower().removesuffix(default_port)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """Return the whole body; None if its sender leaves. Raises `RefusedError`."""
    pieces: list[bytes] = []
    received = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                piece = message.get("body", b"")
                received += len(piece)
                if received > limit:
                    raise size_refusal(limit)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise RefusedError(408, "too-slow", f"The body did not arrive within {BODY_SECONDS:.0f} s.") from None


def replay(body: bytes, receive: Receive) -> Receive:
    """Return the body as one message, then whatever comes."""
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again
