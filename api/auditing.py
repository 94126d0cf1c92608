"""Middleware: every request that may change something leaves a line in the audit log before its answer goes out.

The workers' routes leave none: what they change has a log of its own, the runs' events. Lines that come while others
are written make up the next write, so that sixteen callers at once cost a thread's turn or two and not sixteen.
"""

import asyncio

import structlog
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import caller_of
from api.guards import SAFE_METHODS, WORKER_PATH
from orchestrator.errors import OrchestratorError
from orchestrator.store.audit import AuditLine, AuditLog

log = structlog.get_logger("api")


class Audited:
    """Write who changed what, when, from where, and what came of it."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self.app = app
        self._audit = audit
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        """By the loop that writes for them: there is one, but in tests."""
        self._writing: set[asyncio.Task[None]] = set()
        """A loop itself does not keep its tasks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS or scope["path"].startswith(WORKER_PATH):
            await self.app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_told_of(scope, message["status"]):
                await self._tell(_line(scope, message))
            await send(message)

        await self.app(scope, receive, told)

    async def _tell(self, line: AuditLine) -> None:
        """Have the line written; the first of several that come at once writes for all of them."""
        loop = asyncio.get_running_loop()
        written = loop.create_future()
        waiting = self._waiting.get(loop)
        if waiting is not None:
            waiting.append((line, written))
        else:
            self._waiting[loop] = [(line, written)]
            writing = loop.create_task(self._write(loop))  # of its own: a caller who leaves takes no other's line along
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
        await written

    async def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what waits, and what comes meanwhile, until nothing does."""
        more = True
        while more:
            batch, self._waiting[loop] = self._waiting[loop], []
            broken = await self._written([line for line, _ in batch])
            if not (more := bool(self._waiting[loop])):
                del self._waiting[loop]
            for _, written in batch:
                if not written.done():  # else its caller has left
                    written.set_exception(broken) if broken else written.set_result(None)

    async def _written(self, lines: list[AuditLine]) -> Exception | None:
        """What went wrong beside a database that is away: the changes have been made, and their lines are in the
        service's log then."""
        try:
            await run_in_threadpool(self._audit.add, *lines)
        except OrchestratorError as error:
            for line in lines:
                log.error("not in the audit log", error=str(error), **vars(line))
        except Exception as error:  # noqa: BLE001 - each caller's answer
            return error
        return None


_Waiting = tuple[AuditLine, asyncio.Future[None]]


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
