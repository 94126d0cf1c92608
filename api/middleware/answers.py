"""Middleware of answers: security headers, a problem for an unforeseen error, HEAD, compression.

HEAD gets the answer of GET without its body, with the same length and status. Pages and their figures are compressed
for browsers that accept it. Records are not, because compressing them costs more than sending them, mostly within one
machine.
"""

from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.scopes import STREAMS, find_route
from api.middleware.base import HttpMiddleware
from api.problems import internal_error, negotiate
from dashboards.render import CONTENT_SECURITY_POLICY

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

UNCOMPRESSED_PATHS = ("/v1/", "/static/")
"""Records; and files that are kept compressed."""
LEAST_BYTES = 4_000
LEVEL = 3
"""A quick level: the highest takes far longer for little less."""


class SecurityHeadersMiddleware(HttpMiddleware):
    """Put `HEADERS` on every answer that has not set them itself."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with these headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class InternalErrorMiddleware(HttpMiddleware):
    """Answer an exception without a handler with a 500 problem, as long as no answer has begun."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with a problem where that fails."""
        begun = False

        async def note_begin(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, note_begin)
        except Exception as error:  # whatever it is, the caller gets a problem and the log the trace
            if begun:
                raise
            problem = internal_error(error, scope["method"], scope["path"])
            await negotiate(problem, scope)(scope, receive, send)


class HeadMiddleware(HttpMiddleware):
    """Answer every HEAD by the route for GET at that path."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as GET does, without the body."""
        guarded = find_route("GET", scope["path"]) if scope["method"] == "HEAD" else None
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


class CompressionMiddleware(GZipMiddleware):
    """Compress what is not a record; Starlette leaves streams of events as they are."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, minimum_size=LEAST_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        untouched = scope["type"] == "http" and scope["path"].startswith(UNCOMPRESSED_PATHS)
        await (self.app if untouched else super().__call__)(scope, receive, send)
