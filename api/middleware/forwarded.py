"""Middleware before the application: what a trusted proxy says of the request that it passes on.

`X-Forwarded-For` and `-Proto` are uvicorn's. `X-Forwarded-Prefix` is the path below which the proxy publishes the
service, as Jupyter's and Traefik's send it; `ADAPM_BENCH_ROOT_PATH` says the same for proxies that send nothing.

    browser: /user/ada/proxy/8321/runs ─► proxy: /runs, X-Forwarded-Prefix: /user/ada/proxy/8321 ─► application: /runs

All code behind knows addresses without that path. It is put before them where they leave the service: in pages by
`dashboards/render.py`, in `Location` here.
"""

import re
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from dashboards.render import ROOT_PATH
from orchestrator.settings import ROOT_PATH_PATTERN


class ForwardedMiddleware(ProxyHeadersMiddleware):
    """Believe the headers of trusted proxies, and answer below the path that they name, else below `root_path`."""

    def __init__(self, app: ASGIApp, trusted_hosts: list[str] | str, root_path: str = "") -> None:
        super().__init__(app, trusted_hosts)  # type: ignore[arg-type]  # uvicorn has types of its own for the same
        self.root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]  # as above
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)  # type: ignore[arg-type]
            return
        # Not one that could lead to another host, and from trusted proxies alone.
        prefix = Headers(scope=scope).get("x-forwarded-prefix", "").rstrip("/")
        client = scope.get("client")
        if (client[0] if client else None) in self.trusted_hosts and re.fullmatch(ROOT_PATH_PATTERN, prefix):
            root = prefix
        else:  # a proxy that sends no header may leave the path on
            root, prefix = self.root_path, f"{unquote(self.root_path)}/"
            if root and f"{scope['path']}/".startswith(prefix):
                scope["path"] = f"/{scope['path'][len(prefix) :]}"

        async def send_below(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("location", "").startswith("/"):
                    headers["location"] = root + headers["location"]
            await send(message)

        token = ROOT_PATH.set(root)
        try:
            await super().__call__(scope, receive, send_below)  # type: ignore[arg-type]
        finally:
            ROOT_PATH.reset(token)
