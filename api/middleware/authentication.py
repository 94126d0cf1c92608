"""Middleware: every request is let in by the key of its caller, or answered with what is missing and the way out.

    the table (`api/auth/scopes.py`) ─► open: on to the route
                            ├► a lease's token (`api/auth/callers.py`) ─► 401, 404, 409, 429, or on to the route
                            └► the caller's key (`api/auth/callers.py`) ─► 401, 403, 429, or on to the route

Nothing of a body has been read by then, and what may be read depends on who has come (`bench.body_bytes`).

A service that never had a key listens on loopback only and lets everybody there in; see docs/security.md.
"""

import re
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.callers import Caller, Callers, Leases, PresentedSecret, presented_secret
from api.auth.scopes import Access, find_route, methods_at, routes_at
from api.auth.throttle import Throttle
from api.middleware.base import HttpMiddleware
from api.middleware.guards import SAFE_METHODS, STRANGER_BODY_BYTES, USER_BODY_BYTES, WORKER_BODY_BYTES
from api.problems import RefusedError, asks_for_page, negotiate, problem_response
from dashboards.render import VISITOR, Visitor
from orchestrator.errors import LeaseLostError, OrchestratorError
from orchestrator.keys import KeyRecord
from orchestrator.keys import Scope as KeyScope

WAY_IN = "an admin makes one with `adapm-bench keys create`, and it is sent as `Authorization: Bearer <key>`"
BURST_SECONDS = 3.0
"""The burst: requests of so many seconds pass at once."""
FAILURES_A_SECOND, FAILURES_AT_ONCE = 2.0, 30.0
"""Wrong keys from one address that are looked up at all. Guessing is hopeless; this spares the database."""

ATTEMPT = re.compile(r"/v1/attempts/(?P<run>[A-Za-z0-9_-]{1,64})/(?P<attempt>[1-9][0-9]{0,8})/")
"""The subject of a worker's address."""


class AuthState:
    """The state that the guard and the login routes share: known callers, and callers that ask for too much."""

    def __init__(self, callers: Callers, leases: Leases, requests_a_second: float) -> None:
        self.callers, self.leases = callers, leases
        self.requests = Throttle(requests_a_second, requests_a_second * BURST_SECONDS)
        self.failures = Throttle(FAILURES_A_SECOND, FAILURES_AT_ONCE)
        self.strange_workers = Throttle(FAILURES_A_SECOND, FAILURES_AT_ONCE)


class AuthenticationMiddleware(HttpMiddleware):
    """Let requests in by the key of their caller."""

    def __init__(self, app: ASGIApp, auth: AuthState) -> None:
        super().__init__(app)
        self._auth = auth

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or answer it."""
        try:
            answer = await self._admit(scope)
        except RefusedError as refusal:
            answer = refusal.response()
        except OrchestratorError as error:
            answer = problem_response(503, "store-unavailable", str(error), headers={"Retry-After": "1"})
        key = caller_of(scope).key
        visit = VISITOR.set(
            None
            if key is None
            else Visitor(
                label=key.label,
                may_change=key.scope.covers(KeyScope.SUBMITTER),
                key_id=key.id,
                is_admin=key.scope.covers(KeyScope.ADMIN),
            )
        )
        send_answer = send if key is None else self._keep_private(scope, send)
        try:
            await (self.app if answer is None else negotiate(answer, scope))(scope, receive, send_answer)
        except* _KeyGoneError:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            VISITOR.reset(visit)

    async def _admit(self, scope: Scope) -> Response | None:
        """Note who makes a request that is let in; the way to the login for people who have to sign in first. Raises
        `RefusedError`."""
        address = scope["client"][0] if scope.get("client") else "unknown"
        guarded = find_route(scope["method"], scope["path"])
        scope["bench.caller"] = Caller(address=address)
        scope["bench.route"] = guarded.route if guarded else None
        scope["bench.closed"] = True  # as long as it is not known: a database that is away tells nothing
        access = guarded.access if guarded else Access.ADMIN
        scope["bench.body_bytes"] = STRANGER_BODY_BYTES if access is Access.OPEN else USER_BODY_BYTES
        if access is Access.LEASE:
            await self._admit_worker(scope, address)
            return None
        scope["bench.closed"] = await self._auth.callers.has_keys()
        if not scope["bench.closed"]:
            return None
        if access is Access.OPEN:
            _refuse_flood(self._auth.requests.take(address))
            return None
        headers = Headers(scope=scope)
        secret = presented_secret(headers)
        key = await self._key(secret, address) if secret else None
        if secret is None or key is None:
            return _ask_for_key(scope, headers, secret)
        scope["bench.caller"] = Caller(address=address, key=key)
        _refuse_flood(self._auth.requests.take(key.id))
        if secret.by_cookie and scope["method"] not in SAFE_METHODS and "origin" not in headers:
            raise RefusedError(403, "cross-site", "A change by a login's cookie needs the header Origin; send a key.")
        needed = access.scope()
        if needed is not None and not key.scope.covers(needed):
            raise _scope_refusal(scope, key, needed, is_known=guarded is not None)
        return None

    async def _admit_worker(self, scope: Scope, address: str) -> None:
        """Let a worker in by its lease's token, before anything of its body is read. Raises `RefusedError`."""
        secret, attempt = presented_secret(Headers(scope=scope)), ATTEMPT.match(scope["path"])
        if secret is None or secret.by_cookie:
            _refuse_flood(self._auth.strange_workers.take(address))
            headers = {"WWW-Authenticate": "Bearer"}
            raise RefusedError(401, "token-missing", "Send the lease's token: Authorization: Bearer <token>.", headers)
        if attempt is None:
            _refuse_flood(self._auth.strange_workers.take(address))
            raise RefusedError(404, "not-found", "There is nothing at this address.")
        if not await self._auth.leases.know(attempt["run"], int(attempt["attempt"]), secret.secret):
            # Asked first, counted then: guesses from a worker's own address do not hold the worker up.
            _refuse_flood(self._auth.strange_workers.take(address))
            raise RefusedError(409, "lease-lost", str(LeaseLostError()))
        scope["bench.body_bytes"] = WORKER_BODY_BYTES

    async def _key(self, secret: PresentedSecret, address: str) -> KeyRecord | None:
        callers, failures = self._auth.callers, self._auth.failures
        if not (callers.knows(secret) or callers.was_right(secret.secret)):
            _refuse_flood(failures.wait(address))
        key = await callers.key(secret)
        if key is None:
            failures.take(address)
        return key

    def _keep_private(self, scope: Scope, send: Send) -> Send:
        """Let no cache on the way keep what is answered to one caller, and end an event stream with its key."""
        streams, secret = False, presented_secret(Headers(scope=scope))
        assert secret is not None

        async def send_private(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.setdefault("Cache-Control", "private, no-cache") == "no-cache":
                    headers["Cache-Control"] = "private, no-cache"
                streams = headers.get("content-type", "").startswith("text/event-stream")
            elif streams and await self._auth.callers.key(secret) is None:
                raise _KeyGoneError
            await send(message)

        return send_private


class _KeyGoneError(Exception):
    """The key of an open event stream opens nothing any more."""


def caller_of(scope: Scope) -> Caller:
    """Return the caller that the guard found."""
    caller = scope["bench.caller"]
    assert isinstance(caller, Caller)
    return caller


def _refuse_flood(wait_seconds: int | None) -> None:
    if wait_seconds is not None:
        detail = f"Too many requests; try again in {wait_seconds} s, or ask for several things at once."
        raise RefusedError(429, "too-many-requests", detail, {"Retry-After": str(wait_seconds)})


def _ask_for_key(scope: Scope, headers: Headers, secret: PresentedSecret | None) -> Response:
    """Return the way to the login for people; raises `RefusedError` for programs."""
    path = scope["path"]
    if asks_for_page(scope, headers):
        query = scope.get("query_string", b"").decode("latin-1")
        target = quote(path + (f"?{query}" if query else ""), safe="/")
        return RedirectResponse(f"/login?next={target}" if path != "/" else "/login", 303)
    if secret is None:
        kind, detail = "key-missing", f"This service asks for a key: {WAY_IN}."
    elif secret.by_cookie:
        kind, detail = "key-refused", "The login has ended; sign in again."
    else:
        kind, detail = "key-refused", f"This key opens nothing here; it is unknown, revoked or expired: {WAY_IN}."
    raise RefusedError(401, kind, detail, {"WWW-Authenticate": "Bearer"})


def _scope_refusal(scope: Scope, key: KeyRecord, needed: KeyScope, *, is_known: bool) -> RefusedError:
    if is_known:
        reason = f"{key.label!r} is a key of the scope {key.scope}"
        return RefusedError(403, "scope", f"This needs a key of the scope {needed}; {reason}. Ask an admin.")
    if not routes_at(scope["path"]):
        return RefusedError(404, "not-found", f"There is nothing at {scope['path']}.")
    allowed = {"Allow": methods_at(scope["path"])}
    return RefusedError(405, "method-not-allowed", f"{scope['method']} is not possible here.", allowed)
