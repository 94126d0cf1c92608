"""Middleware that spares the way of an answer, not the work: HEAD, tags, compression.

HEAD is answered as GET would be, without the body; the answer is made whole, so that its length, its tag and its status
are those of GET. REST answers in one piece have a tag, a hash of their bytes: who shows it again hears that it holds.
Pages and their figures are compressed for browsers that take that. Programs get their records as they are: compressing
costs more than reading them, and they are mostly on this machine. Streams, and files that are sent in pieces, go
through as they are.
"""

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.scopes import STREAMS, find_route

REST = "/v1/"
MOST_BYTES = 4 * 2**20
"""Larger answers are not hashed: it would hold up everybody else for ten milliseconds."""
HASH_BYTES = 16
NOT_IN_304 = ("content-length", "content-type")
AS_THEY_ARE = ("/v1/", "/static/")
"""Records; and files that are kept compressed."""
WORTH_BYTES = 4_000
LEVEL = 3
"""A quick one: the highest level takes far longer for little less."""


class HeadMiddleware:
    """Have every HEAD that meets a route for GET answered by that route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        guarded = find_route("GET", scope["path"])
        if guarded is None or guarded.route in STREAMS:
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        get = {**scope, "method": "GET"}  # a copy: the server looks at its own to see that no body may follow
        try:
            await self.app(get, receive, send_head)
        finally:
            scope.update({**get, "method": "HEAD"})  # whoever counts answers wants to know the route


class ETagMiddleware:
    """Put an `ETag` on what GET answers, and answer 304 to an `If-None-Match` that has it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(REST):
            await self.app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match")
        held: Message | None = None

        async def send_tagged(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_plain(message):
                held = message  # until its body is here
                return
            if held is not None:
                start, held = held, None
                if not message.get("more_body", False):
                    start, message = _tag_answer(start, message, known)
                await send(start)
            await send(message)

        await self.app(scope, receive, send_tagged)


def _is_plain(start: Message) -> bool:
    """Whether an answer may have a tag of ours."""
    headers = Headers(raw=start["headers"])
    length = headers.get("content-length", "")
    return start["status"] == 200 and "etag" not in headers and length.isdecimal() and int(length) <= MOST_BYTES


def _tag_answer(start: Message, body: Message, known: str | None) -> tuple[Message, Message]:
    """The answer with its tag; 304 without a body where the caller has it."""
    # Weak: a proxy may compress it on the way, and it is the same record still.
    tag = f'W/"{hashlib.blake2b(body.get("body", b""), digest_size=HASH_BYTES).hexdigest()}"'
    headers = MutableHeaders(raw=start["headers"])
    headers["ETag"] = tag
    headers.setdefault("Cache-Control", "no-cache")  # to be kept, and asked about each time
    if known is None or not matches(known, tag):
        return start, body
    for name in NOT_IN_304:
        del headers[name]
    return {**start, "status": 304}, {**body, "body": b""}


def matches(known: str, tag: str) -> bool:
    """Whether an `If-None-Match` names the tag, compared weakly (RFC 9110)."""
    listed = [each.strip().removeprefix("W/") for each in known.split(",")]
    return "*" in listed or tag.removeprefix("W/") in listed


class CompressionMiddleware:
    """Compresses what is no record and no stream of events."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.compression = GZipMiddleware(app, minimum_size=WORTH_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        untouched = scope["type"] != "http" or scope["path"].startswith(AS_THEY_ARE)
        await (self.app if untouched else self.compression)(scope, receive, send)
