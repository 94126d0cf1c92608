"""Middleware: REST answers that come in one piece have a tag, and who shows that tag again hears that it holds still.

The tag is a hash of the answer: nothing has to be known of what it holds, and it changes when a byte does. It spares
the way, not the work. Streams, and files that are sent in pieces, go through as they are.
"""

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REST = "/v1/"
MOST_BYTES = 4 * 2**20
"""Larger answers are not hashed: it would hold up everybody else for ten milliseconds."""
HASH_BYTES = 16
NOT_IN_304 = ("content-length", "content-type")


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

        async def tagged(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_plain(message):
                held = message  # until its body is here
                return
            if held is not None:
                start, held = held, None
                if not message.get("more_body", False):
                    start, message = _answer(start, message, known)
                await send(start)
            await send(message)

        await self.app(scope, receive, tagged)


def _is_plain(start: Message) -> bool:
    """Whether an answer may have a tag of ours."""
    headers = Headers(raw=start["headers"])
    length = headers.get("content-length", "")
    return start["status"] == 200 and "etag" not in headers and length.isdecimal() and int(length) <= MOST_BYTES


def _answer(start: Message, body: Message, known: str | None) -> tuple[Message, Message]:
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
