"""Middleware: HEAD is answered as GET would be, without the body; routes and their document know nothing of it.

The answer is made whole, so that its length, its tag and its status are those of GET: HEAD spares the way, no work.
Streams of events have no end to wait for, and take GET alone.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.scopes import STREAMS, place_of


class Heads:
    """Have every HEAD that meets a route for GET answered by that route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        place = place_of("GET", scope["path"])
        if place is None or place.route in STREAMS:
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        asked = {**scope, "method": "GET"}  # a copy: the server looks at its own to see that no body may follow
        try:
            await self.app(asked, receive, without_body)
        finally:
            scope.update({**asked, "method": "HEAD"})  # whoever counts answers wants to know the route
