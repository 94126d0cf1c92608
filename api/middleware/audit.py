"""Middleware: every request that may change something leaves a line in the audit log before its answer goes out.

The workers' routes leave none: what they change has a log of its own, the runs' events.

Failed logins come from strangers, as many as they like: of a minute a few have a line each, the rest is counted.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.throttle import network_of
from api.middleware.authentication import caller_of
from api.middleware.guards import SAFE_METHODS, WORKER_PATH
from orchestrator.errors import OrchestratorError
from orchestrator.store.admin.audit import AuditLine, AuditLog

log = structlog.get_logger("api")

MINUTE_SECONDS = 60.0
MOST_STRANGERS = 8
"""Addresses (IPv6: networks) whose first failed login of a minute has a line, and whose others are counted by
themselves; those of all further ones are counted together."""


def is_report(path: str) -> bool:
    """Whether a training tells something here every few seconds: that is no change that somebody made."""
    return path.startswith(WORKER_PATH) or (path.startswith("/v1/external-runs/") and path.endswith("/lines"))


class AuditMiddleware:
    """Write who changed what, when, from where, and what came of it."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self.app = app
        self._audit = audit
        self._logins = _FailedLogins(self._write)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":

            async def receive_and_finish() -> Message:
                message = await receive()
                if message["type"] == "lifespan.shutdown":
                    await self._logins.write_rest()
                return message

            await self.app(scope, receive_and_finish, send)
            return
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS or is_report(scope["path"]):
            await self.app(scope, receive, send)
            return

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and "bench.caller" in scope:
                if caller_of(scope).key is not None or not scope["bench.closed"]:
                    line = _line(scope, message)
                    targets = scope.get("bench.targets") or (line.target,)
                    await self._write(*(replace(line, target=target) for target in targets))
                elif message["status"] == 401 and scope["path"] == "/login":  # else strangers could fill the log
                    await self._logins.note(_line(scope, message))
            await send(message)

        await self.app(scope, receive, send_and_note)

    async def _write(self, *lines: AuditLine) -> None:
        """A database that is away refuses no answer: the changes have been made, and their lines are in the service's
        log then."""
        try:
            await run_in_threadpool(self._audit.add, *lines)
        except OrchestratorError as error:
            for line in lines:
                log.error("not in the audit log", error=str(error), **vars(line))


class _FailedLogins:
    """A bounded number of lines of failed logins: `MOST_STRANGERS` at once, and with the next failure after the minute,
    or when the process ends, as many and one with the counts of the others."""

    def __init__(self, write: Callable[..., Awaitable[None]]) -> None:
        self._write = write
        self._more: Counter[str] = Counter()
        """How many failed after the one that has a line, by network; those of further networks under `_OTHERS`."""
        self._first: AuditLine | None = None
        self._began_at = 0.0

    async def note(self, line: AuditLine) -> None:
        """Remember one."""
        if time.monotonic() - self._began_at >= MINUTE_SECONDS:
            await self.write_rest()
        if self._first is None:
            self._first, self._began_at = line, time.monotonic()
        network = network_of(line.address)
        if network in self._more or len(self._more) - (_OTHERS in self._more) >= MOST_STRANGERS:
            self._more[network if network in self._more else _OTHERS] += 1
        else:
            self._more[network] = 0
            await self._write(line)

    async def write_rest(self) -> None:
        """Write the counts of the minute that has begun, and begin anew with the next failure."""
        first, more = self._first, self._more
        self._first, self._more = None, Counter()
        for network, count in more.items():
            if count and first is not None:
                target = f"{first.target}: {count} more in {MINUTE_SECONDS:g} s"
                await self._write(replace(first, address=network, target=target))


_OTHERS = "other addresses"


def _line(scope: Scope, start: Message) -> AuditLine:
    caller, made = caller_of(scope), Headers(raw=start["headers"]).get("location")
    return AuditLine(
        key_id=caller.key_id(),
        address=caller.address,
        action=scope["bench.route"] or f"{scope['method']} {scope['path']}",
        target=made if made and start["status"] < 300 else scope["path"],
        outcome=start["status"],
    )
