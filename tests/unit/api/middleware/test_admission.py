"""Calls by class: what one class asks for holds up no other, and nobody waits in a queue without end."""

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from api.auth.callers import Caller
from api.auth.scopes import HEAVY, ROUTES, STREAMS, WHOLE
from api.middleware.admission import AdmissionMiddleware

EXPORT = "GET /v1/experiments/{experiment_id}/exports/{name}"
LIST = "GET /v1/runs"
HEARTBEAT = "POST /v1/attempts/{run_id}/{attempt}/heartbeat"
STREAM = "GET /events"
pytestmark = pytest.mark.anyio


class House:
    """An application whose answers wait, and callers of it."""

    def __init__(self) -> None:
        self.at_work = 0
        self.may_end = asyncio.Event()
        self._admission = AdmissionMiddleware(self._answer)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.at_work += 1
        await self.may_end.wait()
        self.at_work -= 1
        await PlainTextResponse("done")(scope, receive, send)

    def call(self, route: str, caller: str = "a", left: asyncio.Event | None = None) -> asyncio.Task[Any]:
        """Make a call, to be awaited: the start of its answer; None if the caller has left before it."""

        async def called() -> Message | None:
            messages: list[Message] = []
            bodies = [{"type": "http.request", "body": b"", "more_body": False}]

            async def receive() -> Message:
                if bodies:
                    return bodies.pop()
                await (left or asyncio.Event()).wait()
                return {"type": "http.disconnect"}

            async def send(message: Message) -> None:
                messages.append(message)

            identity = Caller(address=caller)
            await self._admission({"type": "http", "bench.route": route, "bench.caller": identity}, receive, send)
            return messages[0] if messages else None

        return asyncio.create_task(called())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def house() -> House:
    return House()


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def status(start: Message) -> int:
    return int(start["status"])


async def test_a_flood_of_exports_holds_up_nothing_else(house: House):
    exports = [house.call(EXPORT) for _ in range(45)]
    await settle()
    assert house.at_work == 2
    refused = [task.result() for task in exports if task.done()]
    assert [status(start) for start in refused] == [429] * (45 - 16)
    assert all((b"retry-after", b"2") in start["headers"] for start in refused)
    calls = [house.call(route) for route in (LIST, HEARTBEAT, STREAM, "GET /compare", "GET /healthz")]
    await settle()
    assert house.at_work == 2 + len(calls)
    house.may_end.set()
    assert {status(start) for start in await asyncio.gather(*calls)} == {200}
    assert sorted(status(start) for start in await asyncio.gather(*exports)) == [200] * 16 + [429] * 29
    assert status(await house.call(EXPORT)) == 200, "what ended has given its place back"


async def test_many_callers_together_have_so_many_places(house: House):
    calls = [house.call(EXPORT, str(caller)) for caller in range(70)]
    await settle()
    assert [status(task.result()) for task in calls if task.done()] == [503] * 6
    house.may_end.set()
    await asyncio.gather(*calls)


async def test_workers_are_as_many_as_come(house: House):
    calls = [house.call(HEARTBEAT) for _ in range(1000)] + [house.call(LIST) for _ in range(100)]
    await settle()
    assert house.at_work == 1000 + 8
    house.may_end.set()
    assert {status(start) for start in await asyncio.gather(*calls)} == {200}


def test_every_route_of_a_class_exists():
    """A route that is renamed would lose its class in silence."""
    every_route = {route for routes in ROUTES.values() for route in routes}
    assert every_route >= HEAVY | WHOLE | STREAMS
    assert HEAVY and WHOLE and not HEAVY & WHOLE
    assert "GET /v1/external-runs/{external_id}/series" in HEAVY, "two million values"
    assert "GET /v1/external-experiments" in WHOLE, "a sum over all runs"


async def test_who_leaves_while_it_waits_is_never_served(house: House):
    departure = asyncio.Event()
    working = [house.call(EXPORT) for _ in range(2)]
    await settle()
    leaving, staying = house.call(EXPORT, left=departure), house.call(EXPORT)
    await settle()
    departure.set()
    assert await leaving is None
    house.may_end.set()
    assert {status(start) for start in await asyncio.gather(*working, staying)} == {200}
    assert house.at_work == 0


async def test_one_that_breaks_off_gives_its_turn_back(house: House):
    broken = [house.call(EXPORT) for _ in range(2)]
    await settle()
    waiting = house.call(EXPORT)
    await settle()
    for task in broken:
        task.cancel()
    await asyncio.gather(*broken, return_exceptions=True)
    house.may_end.set()
    assert status(await waiting) == 200
