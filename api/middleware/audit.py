"""Middleware: every request that may change something leaves a line in the audit log before its answer goes out.

The workers' routes leave none: what they change has a log of its own, the runs' events.

Failed logins change nothing, and strangers can make as many as they like: they stand in the service's own log.
"""

import structlog
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.middleware.authentication import caller_of
from api.middleware.base import HttpMiddleware
from api.middleware.guards import SAFE_METHODS, WORKER_PATH
from orchestrator.errors import OrchestratorError
from orchestrator.store.admin.audit import AuditLine, AuditLog

log = structlog.get_logger("api")


class AuditMiddleware(HttpMiddleware):
    """Write who changed what, when, from where, and what came of it."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        super().__init__(app)
        self._audit = audit

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and write the lines first."""
        path = scope["path"]
        # What a training tells every few seconds is not a change that somebody made.
        is_report = path.startswith(WORKER_PATH) or (path.startswith("/v1/external-runs/") and path.endswith("/lines"))
        if is_report or scope["method"] in SAFE_METHODS:
            await self.app(scope, receive, send)
            return

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and "bench.caller" in scope:
                if caller_of(scope).key is not None or not scope["bench.closed"]:
                    await self._write(_line(scope, message))
                elif message["status"] == 401 and path == "/login":
                    log.warning("failed login", address=caller_of(scope).address)
            await send(message)

        await self.app(scope, receive, send_and_note)

    async def _write(self, line: AuditLine) -> None:
        """Write the line. A database that is away refuses no answer: the change has been made, and the log has
        the line."""
        try:
            await run_in_threadpool(self._audit.add, line)
        except OrchestratorError as error:
            log.error("not in the audit log", error=str(error), **vars(line))


def _line(scope: Scope, start: Message) -> AuditLine:
    caller, location = caller_of(scope), Headers(raw=start["headers"]).get("location")
    return AuditLine(
        key_id=caller.key_id(),
        address=caller.address,
        action=scope["bench.route"] or f"{scope['method']} {scope['path']}",
        target=location if location and start["status"] < 300 else scope["path"],
        outcome=start["status"],
    )
