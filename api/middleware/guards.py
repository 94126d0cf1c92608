"""Middleware that looks at a request before any route does: host, origin, size, query; and the headers on every answer.

Against DNS rebinding: only known host names are served. Against cross-site requests: an unsafe method with an
`Origin` must come from our own pages. Plain ASGI, because wrapping responses would break streams.

Query parameters that a REST route does not know are refused, lest a misspelt filter answer with all. Pages take what
is added to their addresses, and so do the files of their figures. The workers' routes have no parameters, and their
senders are ours. NUL is refused everywhere: PostgreSQL has no text with it, SQLite has.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import RefusedError, invalid_request, negotiate, problem_response
from dashboards.render import CONTENT_SECURITY_POLICY
from optim.nearest import hint
from orchestrator.specs.faults import Fault, pointer, short_json

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
UNKNOWN_HOST = "This service is not known by that host name; its operator can name it in ADAPM_BENCH_ALLOWED_HOSTS."
ADDRESS = re.compile(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

KIB, MIB = 2**10, 2**20
STRANGER_BODY_BYTES = 16 * KIB
"""Of who has shown nothing yet: a login's form is some hundred bytes."""
USER_BODY_BYTES = 1 * MIB
"""A comparison of 64 candidates with 64 learning rates each is 100 KiB."""
WORKER_BODY_BYTES = 16 * MIB
"""10,000 points, the largest batch, are about 2 MiB; observations may come with them."""
SMALL_BODY_BYTES = 64 * KIB
"""What the server reads of any connection before it asks us; so many connections there may be, so much there is."""
ROOM_BYTES = {STRANGER_BODY_BYTES: 0, USER_BODY_BYTES: 32 * MIB, WORKER_BODY_BYTES: 2 * WORKER_BODY_BYTES}
"""For larger bodies, until they are answered, by the most that one may have: users take nothing from workers."""
BODY_SECONDS = 30.0
"""1 MiB at 35 KB/s; workers give up after five seconds."""
WORKER_PATH = "/v1/attempts/"

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
RAW_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


class SecurityHeadersMiddleware:
    """Put `HEADERS` on every answer that has not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = message.setdefault("headers", [])
                names = {name.lower() for name, _ in sent}
                sent.extend(pair for pair in RAW_HEADERS if pair[0] not in names)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class HostAndOriginMiddleware:
    """Refuse names that are not ours (400), and unsafe requests that other sites' pages make (403)."""

    def __init__(self, app: ASGIApp, allowed_hosts: tuple[str, ...]) -> None:
        self.app = app
        self.allowed_hosts = frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        await refusal.response()(scope, receive, send)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        headers = Headers(scope=scope)
        host, server = headers.get("host", ""), scope.get("server")
        # A page of another site that was pointed here by its name says that name in `Host`; scrapers and probes say the
        # number: the address that the connection came to.
        own_address = str(server[0]) if server and ADDRESS.fullmatch(str(server[0])) else None
        if host_name(host) not in self.allowed_hosts and host_name(host) != own_address:
            return RefusedError(400, "unknown-host", UNKNOWN_HOST)
        origin = headers.get("origin")
        if origin is None or scope.get("method") in SAFE_METHODS or _is_same_address(origin, host):
            return None
        return RefusedError(403, "cross-site", "Pages of other sites may not change anything here.")


class BodyLimitMiddleware:
    """Read a body whole before a route sees it, and before it takes a thread: no larger than its caller may send (413),
    no slower than `BODY_SECONDS` (408), and only where there is room for it beside the others (503)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._room_bytes = dict(ROOM_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
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
                    await self.app(scope, _replay(body, receive), send)
        except RefusedError as refusal:
            await negotiate(refusal.response(), scope)(scope, receive, send)

    @contextmanager
    def _reserve(self, size: int, limit: int) -> Iterator[None]:
        """Room for a body until it is answered. Raises `RefusedError`."""
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
    """The refusal of a body above `limit_bytes`."""
    most = f"{limit_bytes // MIB} MiB" if limit_bytes >= MIB else f"{limit_bytes // KIB} KiB"
    return RefusedError(413, "too-large", f"The body is larger than {most}, the most that is read.")


def host_name(host: str) -> str:
    """The name in a `Host` header: without port, without the brackets of an IPv6 address, in lower case.

    Empty where the header is not a host with an optional port.
    """
    found = HOST.fullmatch(host.lower())
    return found["name"].strip("[]") if found else ""


def _is_same_address(origin: str, host: str) -> bool:
    """Whether `origin` is the very address that the request went to; another port of this machine is not."""
    parts = urlsplit(origin)
    default_port = {"http": ":80", "https": ":443"}.get(parts.scheme)
    if default_port is None:
        return False
    return parts.netloc.lower().removesuffix(default_port) == host.lower().removesuffix(default_port)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None where its sender leaves. Raises `RefusedError`."""
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


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever comes."""
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again


Known = Mapping[str, tuple[str, ...]]

LIKE_PAGES = frozenset(("GET /v1/experiments/{experiment_id}/figures/{name}.{form}",))
"""Routes whose query is that of a page's address (`dashboards/view_state.py`), hand-edited links included."""
MOST_FAULTS = 8
"""Unknown names that one answer lists: each is compared with the known ones."""


class QueryCheckMiddleware:
    """Refuse (422) parameters that the route at which a request arrives does not have."""

    def __init__(self, app: ASGIApp, known: Known) -> None:
        self.app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["query_string"]:
            refusal = _query_refusal(scope, self._known.get(scope["bench.route"]))
            if refusal is not None:
                await negotiate(refusal, scope)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def query_parameters(routers: Iterable[APIRouter], prefix: str) -> Known:
    """The parameters of every route, by its line in the table of scopes: `GET /v1/runs`."""
    known = {
        f"{method} {prefix}{route.path}": tuple(_parameter_names(route.dependant))
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    return {route: names for route, names in known.items() if route not in LIKE_PAGES}


def _parameter_names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        kind = field.field_info.annotation
        # Of a model of the whole query, its fields are the parameters.
        yield from kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else (field.alias,)
    for each in dependant.dependencies:
        yield from _parameter_names(each)


def _query_refusal(scope: Scope, known: tuple[str, ...] | None) -> Response | None:
    """What refuses a query; `known` are the route's parameters, None where it takes all."""
    sent = QueryParams(scope["query_string"])
    unknown = [name for name in sent if known is not None and name not in known]
    with_nul = [(name, value) for name, value in sent.multi_items() if "\0" in name + value and name not in unknown]
    found = [
        (name, sent[name], f"unknown parameter; {hint(name, known) if known else 'there are none here'}")
        for name in unknown[:MOST_FAULTS]
    ]
    found += [(name, value, "text without the character U+0000") for name, value in with_nul[:MOST_FAULTS]]
    if not found:
        return None
    faults = tuple(
        Fault(pointer=pointer((name,)), value=short_json(value), allowed=allowed, source="query")
        for name, value, allowed in found
    )
    if unknown:
        return invalid_request(faults)
    detail = "A text in the query has the character U+0000; send it without that."  # all that a page says of it
    return problem_response(422, "invalid", detail, errors=faults)
