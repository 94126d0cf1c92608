"""Middleware: every request that may change something leaves a line in the audit log before its answer goes out.

The workers' routes leave none: what they change has a log of its own, the runs' events. Lines that come while others
are written make up the next write (`gathered.py`).
"""

from collections.abc import Sequence

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import caller_of
from api.gathered import Gathered
from api.guards import SAFE_METHODS, WORKER_PATH
from orchestrator.errors import OrchestratorError
from orchestrator.store.audit import AuditLine, AuditLog

log = structlog.get_logger("api")


class Audited:
    """Write who changed what, when, from where, and what came of it."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self.app = app
        self._audit = audit
        self._tell = Gathered[AuditLine, None](self._written)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS or scope["path"].startswith(WORKER_PATH):
            await self.app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_told_of(scope, message["status"]):
                await self._tell(_line(scope, message))
            await send(message)

        await self.app(scope, receive, told)

    def _written(self, lines: Sequence[AuditLine]) -> list[None]:
        """A database that is away refuses no answer: the changes have been made, and their lines are in the service's
        log then."""
        try:
            self._audit.add(*lines)
        except OrchestratorError as error:
            for line in lines:
                log.error("not in the audit log", error=str(error), **vars(line))
        return [None] * len(lines)


def _is_told_of(scope: Scope, status: int) -> bool:
    """Of strangers to a service with keys only wrong keys at the login are told: else they could fill the log."""
    if "bench.caller" not in scope:
        return False
    if caller_of(scope).key is not None or not scope["bench.closed"]:
        return True
    return status == 401 and scope["path"] == "/login"


def _line(scope: Scope, start: Message) -> AuditLine:
    caller, made = caller_of(scope), Headers(raw=start["headers"]).get("location")
    return AuditLine(
        key_id=caller.key.id if caller.key else None,
        address=caller.address,
        action=scope["bench.route"] or f"{scope['method']} {scope['path']}",
        target=made if made and start["status"] < 300 else scope["path"],
        outcome=start["status"],
    )
