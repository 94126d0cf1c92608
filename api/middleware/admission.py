"""Middleware: admit calls by class, so that no class takes the threads of another.

    workers    reports of attempts                 as many as come: more than half of the threads are theirs
    heavy      exports, reports, drawn figures     two at work, some waiting, fewer of one caller
    whole      pages and answers of all its runs   two at work, more waiting
    ordinary   everything else that reads a store  more at work, many waiting
    public     health, login, static files         a few

A call that cannot even wait is refused: with 429 if its caller has too many, with 503 if all callers together have. A
call waits on the event loop, without a thread, and leaves the queue when its caller does. Event streams take no turn.

Threads that compute share the interpreter's lock: with many of them heartbeats wait, and no thread is faster.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.scopes import HEAVY, ROUTES, STREAMS, WHOLE, Access
from api.middleware.authentication import caller_of
from api.middleware.base import HttpMiddleware
from api.middleware.guards import replay
from api.problems import RefusedError

RETRY_SECONDS = "2"


class Lane:
    """The calls of one class: `at_work` at once, and so many within it altogether, and of one caller."""

    def __init__(self, *, at_work: int, within: int, of_one_caller: int) -> None:
        self.turns = asyncio.Semaphore(at_work)
        """Who waits gets a turn in the order of coming."""
        self._places, self._of_one_caller = within, of_one_caller
        self._callers: Counter[str] = Counter()

    @contextmanager
    def reserve(self, caller: str) -> Iterator[None]:
        """Reserve one of the places for calls that run or wait. Raises `RefusedError`."""
        headers = {"Retry-After": RETRY_SECONDS}
        if self._callers[caller] >= self._of_one_caller:
            detail = f"You have {self._of_one_caller} such calls under way; ask again once one has ended."
            raise RefusedError(429, "too-many-at-once", detail, headers)
        if self._callers.total() >= self._places:
            raise RefusedError(503, "busy", "Too many such calls are under way; ask again in a moment.", headers)
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]


class AdmissionMiddleware(HttpMiddleware):
    """Let calls in by class; behind the guard, which says who calls, and behind what reads bodies."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self._ordinary = Lane(at_work=8, within=512, of_one_caller=256)
        self._lanes: Mapping[str, Lane | None] = {
            **dict.fromkeys((*STREAMS, *ROUTES[Access.LEASE])),
            **dict.fromkeys(ROUTES[Access.OPEN], Lane(at_work=4, within=128, of_one_caller=64)),
            **dict.fromkeys(HEAVY, Lane(at_work=2, within=64, of_one_caller=16)),
            **dict.fromkeys(WHOLE, Lane(at_work=2, within=256, of_one_caller=64)),
        }

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call when it is its turn, unless its caller has left by then."""
        lane = self._lanes.get(scope["bench.route"], self._ordinary)
        if lane is None:
            await self.app(scope, receive, send)
            return
        caller = caller_of(scope)
        try:
            with lane.reserve(caller.key.id if caller.key else caller.address):
                await self._take_turn(lane.turns, scope, receive, send)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)

    async def _take_turn(self, turns: asyncio.Semaphore, scope: Scope, receive: Receive, send: Send) -> None:
        has_to_wait, turn = turns.locked(), asyncio.ensure_future(turns.acquire())
        has_ended = False

        def end_turn() -> None:
            nonlocal has_ended
            if not has_ended and not turn.cancel():  # one that has not come yet never will
                turns.release()
            has_ended = True

        async def send_and_end_turn(message: Message) -> None:
            if message["type"] == "http.response.start":
                end_turn()  # the answer is made; how slowly it is fetched holds nobody up
            await send(message)

        try:
            if has_to_wait:
                receive = await _wait(turn, receive)
            else:
                await turn
            if turn.done():
                await self.app(scope, receive, send_and_end_turn)
        finally:
            end_turn()


async def _wait(turn: asyncio.Future[Any], receive: Receive) -> Receive:
    """Wait for the turn, or until the caller leaves. What the caller has sent is still to be received."""
    request = await receive()  # whole, as `BodyLimitMiddleware` has read it
    departure = asyncio.ensure_future(receive())
    try:
        either: list[asyncio.Future[Any]] = [turn, departure]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        departure.cancel()
    return replay(request.get("body", b""), receive)
