"""Requests are refused before any route sees them: foreign hosts, other sites' pages, oversized bodies."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.middleware.answers import InternalErrorMiddleware, SecurityHeadersMiddleware
from api.middleware.guards import (
    ROOM_BYTES,
    STRANGER_BODY_BYTES,
    USER_BODY_BYTES,
    WORKER_BODY_BYTES,
    BodyLimitMiddleware,
    HostAndOriginMiddleware,
)


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


async def broken(request: Request) -> PlainTextResponse:
    raise ZeroDivisionError("the secret of the house")


class Known:
    """The guard's part: who sends it may send so much."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app, self.most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["bench.body_bytes"] = self.most_bytes
        await self.app(scope, receive, send)


def client(most_body_bytes: int = USER_BODY_BYTES) -> TestClient:
    app = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])
    app.add_middleware(BodyLimitMiddleware)
    app.add_middleware(Known, most_bytes=most_body_bytes)
    app.add_middleware(HostAndOriginMiddleware, allowed_hosts=("localhost", "[::1]", "Bench.example"))
    app.add_middleware(SecurityHeadersMiddleware)
    return TestClient(app, base_url="http://localhost:8321")


@pytest.mark.parametrize("host", ["localhost", "localhost:8321", "[::1]:8321", "bench.EXAMPLE"])
def test_known_hosts_are_served(host: str):
    assert client().get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example:8321", "", "[::1].evil", "@", "localhost:80@evil.example"],
)
def test_other_hosts_are_refused(host: str):
    answer = client().get("/", headers={"Host": host})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:adapm-bench:problem:unknown-host")


def test_the_address_that_the_connection_came_to_is_served_and_no_other():
    """Probes and scrapers of a cluster know processes by their numbers."""
    app = HostAndOriginMiddleware(Starlette(routes=[Route("/", echo)]), allowed_hosts=("bench.example",))
    answers = {
        host: TestClient(app, base_url="http://10.0.0.7:8321").get("/", headers={"Host": host}).status_code
        for host in ("10.0.0.7:8321", "10.0.0.8:8321", "testserver")
    }
    assert answers == {"10.0.0.7:8321": 200, "10.0.0.8:8321": 400, "testserver": 400}


@pytest.mark.parametrize("origin", ["http://localhost:8321", "http://LOCALHOST:8321"])
def test_our_own_pages_may_post(origin: str):
    assert client().post("/", headers={"Origin": origin}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost:9999", "http://localhost", "null", "", "file://localhost:8321", "://"],
)
def test_pages_of_other_sites_may_not_post(origin: str):
    answer = client().post("/", headers={"Origin": origin})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:adapm-bench:problem:cross-site")


def test_reading_needs_no_origin_of_ours():
    assert client().get("/", headers={"Origin": "http://evil.example"}).status_code == 200


def test_the_default_port_may_be_left_out_of_an_origin():
    answer = client().post("/", headers={"Host": "bench.example:80", "Origin": "http://bench.example"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("most", "size", "status"),
    [
        (STRANGER_BODY_BYTES, 2**14, 200),
        (STRANGER_BODY_BYTES, 2**14 + 1, 413),
        (USER_BODY_BYTES, 2**20, 200),
        (USER_BODY_BYTES, 2**20 + 1, 413),
        (WORKER_BODY_BYTES, 2**20 + 1, 200),
        (WORKER_BODY_BYTES, 16 * 2**20 + 1, 413),
    ],
)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_bodies_have_a_limit(most: int, size: int, status: int, declared: bool):
    def chunks():
        for start in range(0, size, 2**16):
            yield b"x" * min(2**16, size - start)

    answer = client(most).post("/", content=b"x" * size if declared else chunks())
    assert answer.status_code == status


def test_there_is_room_for_so_many_bodies_at_once_and_users_take_none_from_workers():
    """Each is refused with the time to come again, before anything of it is read; what is answered gives room back."""
    read: list[int] = []

    async def ask(limit_bytes: int, size: int, answered: asyncio.Event | None) -> int:
        """One request whose body comes once `answered` is set; the status of its answer."""
        begun: list[Message] = []

        async def receive() -> Message:
            if answered is not None:
                await answered.wait()
            read.append(size)
            return {"type": "http.request", "body": b"x" * size, "more_body": False}

        async def send(message: Message) -> None:
            begun.append(message)

        headers = [(b"content-length", str(size).encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "bench.body_bytes": limit_bytes}
        await limit(scope, receive, send)
        return int(begun[0]["status"])

    async def read_and_answer(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(str(len((await receive())["body"])))(scope, receive, send)

    async def scene() -> None:
        answered = asyncio.Event()
        body_count = ROOM_BYTES[USER_BODY_BYTES] // USER_BODY_BYTES
        tasks = [asyncio.create_task(ask(USER_BODY_BYTES, USER_BODY_BYTES, answered)) for _ in range(body_count)]
        await asyncio.sleep(0)
        assert await ask(USER_BODY_BYTES, USER_BODY_BYTES, None) == 503
        assert read == []
        assert await ask(USER_BODY_BYTES, 1000, None) == 200, "a small one needs no room"
        assert await ask(WORKER_BODY_BYTES, WORKER_BODY_BYTES, None) == 200
        answered.set()
        assert await asyncio.gather(*tasks) == [200] * body_count
        assert await ask(USER_BODY_BYTES, USER_BODY_BYTES, None) == 200

    limit = BodyLimitMiddleware(read_and_answer)
    asyncio.run(scene())


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("api.middleware.guards.BODY_SECONDS", 0.01)
    begun: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        begun.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"10")]}
    asyncio.run(BodyLimitMiddleware(PlainTextResponse("never"))(scope, receive, send))
    assert begun[0]["status"] == 408


def test_what_nobody_foresaw_is_logged_with_an_id_and_told_without_a_trace(capsys):
    app = Starlette(routes=[Route("/", broken)])
    app.add_middleware(InternalErrorMiddleware)
    answer = TestClient(app).get("/")
    problem = answer.json()
    logged = capsys.readouterr()
    assert answer.status_code == 500
    assert problem["type"] == "urn:adapm-bench:problem:internal"
    assert problem["error_id"] in problem["detail"]
    assert "secret" not in answer.text
    assert "ZeroDivisionError" not in answer.text
    assert problem["error_id"] in logged.out + logged.err
    assert "the secret of the house" in logged.out + logged.err
