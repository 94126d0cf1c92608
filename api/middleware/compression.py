"""Middleware: pages and their figures cross the wire compressed, where the browser takes that: a fifth of the bytes.

Programs get their records as they are: compressing costs more than reading them, and they are mostly on this machine.
"""

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

AS_THEY_ARE = ("/v1/", "/static/")
"""Records; and files that are kept compressed."""
WORTH_BYTES = 4_000
LEVEL = 3
"""A page of 100 kB takes about a millisecond; the highest level takes five times as long for a tenth less."""


class CompressionMiddleware:
    """Compresses what is no record and no stream of events."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.compressing = GZipMiddleware(app, minimum_size=WORTH_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] != "http" or scope["path"].startswith(AS_THEY_ARE)
        await (self.app if plain else self.compressing)(scope, receive, send)
