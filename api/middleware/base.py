"""The base of every middleware of the application. Plain ASGI, because wrapping responses would break streams."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HttpMiddleware:
    """Has `handle` see every request; the application's start and end pass by."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or hand it to `self.app`."""
        raise NotImplementedError
