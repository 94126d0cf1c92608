"""Middleware: calls are let in by class, so that no class takes the threads of another.

    workers    reports of attempts                 as many as come: more than half of the threads are theirs
    heavy      exports, reports, drawn figures     two at work, some waiting, fewer of one caller
    whole      pages and answers of all its runs   two at work, more waiting
    ordinary   everything else that reads a store  more at work, many waiting
    public     health, login, static files         a few

Who cannot even wait is asked to come again: 429 where it is the caller's own doing, 503 where it is that of all. A call
waits on the event loop, without a thread, and leaves the queue when its caller does. Event streams take no turn.

Threads that compute hand the interpreter's lock around: with many of them heartbeats wait, and none of them is quicker
for it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.scopes import HEAVY, ROUTES, STREAMS, WHOLE, Access
from api.middleware.authentication import caller_of
from api.problems import RefusedError

RETRY_SECONDS = "2"


class Lane:
    """The calls of one class: `at_work` at once, and so many within it altogether, and of one caller."""

    def __init__(self, *, at_work: int, within: int, of_one_caller: int) -> None:
        self._free, self._places, self._of_one_caller = at_work, within, of_one_caller
        self._callers: Counter[str] = Counter()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def enter(self, caller: str) -> None:
        """Take a place. Raises `RefusedError`."""
        headers = {"Retry-After": RETRY_SECONDS}
        if self._callers[caller] >= self._of_one_caller:
            detail = f"You have {self._of_one_caller} such calls under way; ask again once one has ended."
            raise RefusedError(429, "too-many-at-once", detail, headers)
        if self._callers.total() >= self._places:
            raise RefusedError(503, "busy", "Too many such calls are under way; ask again in a moment.", headers)
        self._callers[caller] += 1

    def leave(self, caller: str) -> None:
        """Give the place back."""
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]

    def turn(self) -> asyncio.Future[None]:
        """Done once it is the caller's turn to work, the earlier ones first; to be given back by `end_turn`."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._free:
            self._free -= 1
            turn.set_result(None)
        else:
            self._waiting.append(turn)
        return turn

    def end_turn(self, turn: asyncio.Future[None]) -> None:
        """The next one's turn; where it had not come yet, it never will."""
        if not turn.done():
            self._waiting.remove(turn)
            turn.cancel()
        elif self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1


class AdmissionMiddleware:
    """Let calls in by class; behind the guard, which says who calls, and behind what reads bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._heavy = Lane(at_work=2, within=64, of_one_caller=16)
        self._whole = Lane(at_work=2, within=256, of_one_caller=64)
        self._ordinary = Lane(at_work=8, within=512, of_one_caller=256)
        self._public = Lane(at_work=4, within=128, of_one_caller=64)
        self._lanes: Mapping[str, Lane | None] = {
            **dict.fromkeys((*STREAMS, *ROUTES[Access.LEASE])),
            **dict.fromkeys(ROUTES[Access.OPEN], self._public),
            **dict.fromkeys(HEAVY, self._heavy),
            **dict.fromkeys(WHOLE, self._whole),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = self._lanes.get(scope["bench.route"], self._ordinary) if scope["type"] == "http" else None
        if lane is None:
            await self.app(scope, receive, send)
            return
        who = caller_of(scope)
        caller = who.key.id if who.key else who.address
        try:
            lane.enter(caller)
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send)
            return
        try:
            await self._take_turn(lane, scope, receive, send)
        finally:
            lane.leave(caller)

    async def _take_turn(self, lane: Lane, scope: Scope, receive: Receive, send: Send) -> None:
        turn = lane.turn()
        working = True

        def end_turn() -> None:
            nonlocal working
            if working:
                working = False
                lane.end_turn(turn)

        async def send_and_end_turn(message: Message) -> None:
            if message["type"] == "http.response.start":
                end_turn()  # the answer is made; how slowly it is fetched holds nobody up
            await send(message)

        try:
            if not turn.done():
                receive = await _wait(turn, receive)
            if turn.done():
                await self.app(scope, receive, send_and_end_turn)
        finally:
            end_turn()


async def _wait(turn: asyncio.Future[None], receive: Receive) -> Receive:
    """Wait for the turn, or until the caller leaves. What the caller has sent is still to be received."""
    request = await receive()  # whole, as `BodyLimitMiddleware` has read it
    left = asyncio.ensure_future(receive())
    try:
        either: list[asyncio.Future[Any]] = [turn, left]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not left.done():
            left.cancel()
    waiting = [request]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
