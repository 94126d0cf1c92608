"""Connections that say nothing, too much or too little, on a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from api.middleware import connections
from api.middleware.connections import BoundedProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
pytestmark = pytest.mark.anyio


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("x" * (2**26 if scope["path"] == "/large" else 5))(scope, receive, send)


class Site:
    """A server of `app`, for clients of one test."""

    def __init__(self) -> None:
        self.config, self.state = uvicorn.Config(app), ServerState()
        self.config.load()
        self.address: tuple[str, int] = ("", 0)
        self.opened: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        self.opened.append(writer)
        return reader, writer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedProtocol(config=site.config, server_state=site.state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        site.address = server.sockets[0].getsockname()[:2]
        yield site
        for writer in site.opened:
            writer.transport.abort()


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: ", REQUEST + b"GET", REQUEST + b"\r\n"])
async def test_a_head_that_does_not_come_is_not_waited_for(said: bytes, monkeypatch: pytest.MonkeyPatch, site: Site):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    reader, writer = await site.connect()
    writer.write(said)
    assert (await read_to_the_end(reader)).count(b"200 OK") == said.count(REQUEST)


async def test_what_waits_for_its_answer_is_not_cut_off(monkeypatch: pytest.MonkeyPatch, site: Site):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    answering = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await answering.wait()
        await PlainTextResponse("at last")(scope, receive, send)

    monkeypatch.setattr(site.config, "loaded_app", slow)
    reader, writer = await site.connect()
    writer.write(REQUEST)
    closed, _ = await site.connect()
    assert await read_to_the_end(closed) == b"", "one that says nothing is cut off meanwhile"
    answering.set()
    assert b"200 OK" in await reader.readline()


async def test_a_head_without_end_is_refused(site: Site):
    reader, writer = await site.connect()
    writer.write(b"GET / HTTP/1.1\r\n" + (b"X-More: " + b"x" * 1000 + b"\r\n") * 80)
    assert (await reader.readline()).startswith(b"HTTP/1.1 431")


async def test_what_follows_a_chunked_body_without_end_is_cut_off(site: Site):
    """Trailers have no size of their own, and belong to no head."""

    _, writer = await site.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 2**26:
            writer.write(b"x: " + b"a" * 8_000 + b"\r\n")
            await writer.drain()
            sent += 8_000
    assert sent < 2**26
    while site.state.connections:
        await asyncio.sleep(0.01)


async def test_who_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch, site: Site):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 1.0)
    reader, writer = await site.connect()
    writer.write(REQUEST.replace(b"/", b"/large", 1))
    await reader.readuntil(b"\r\n\r\n")
    received_bytes = 0
    while received_bytes < 2**26:
        piece = await reader.read(2**20)
        assert piece, f"cut off after {received_bytes} bytes"
        received_bytes += len(piece)
        await asyncio.sleep(0.03)


async def test_the_quietest_one_makes_room(monkeypatch: pytest.MonkeyPatch, site: Site):
    monkeypatch.setattr(BoundedProtocol, "most_connections", 3)
    first, *later_connections = [await site.connect() for _ in range(3)]
    while len(site.state.connections) < 3:
        await asyncio.sleep(0)
    reader, writer = await site.connect()
    writer.write(REQUEST)
    assert b"200 OK" in await reader.readline()
    assert await read_to_the_end(first[0]) == b""
    assert not any(reader.at_eof() for reader, _ in later_connections)


async def test_an_answer_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch, site: Site):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.2)
    _, writer = await site.connect()
    writer.write(REQUEST.replace(b"/", b"/large", 1))
    while not site.state.connections:
        await asyncio.sleep(0)
    while site.state.connections:
        await asyncio.sleep(0.01)
