"""Compressed answers: pages and figures, not records or streams."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from api.app import create_app
from api.middleware.answers import LEAST_BYTES, CompressionMiddleware
from tests.factories.playing import DEMO
from tests.factories.serving import open_services


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of the whole application, over one experiment that was played to its end."""
    with open_services(tmp_path_factory.mktemp("bench")) as (services, player):
        services.experiments.submit(DEMO)
        player.finish()
        with TestClient(create_app(services), base_url="http://127.0.0.1") as test_client:
            yield test_client


@pytest.mark.parametrize(
    ("path", "encoding"),
    [
        ("/studies", "gzip"),
        ("/", "gzip"),
        ("/v1/optimizers", None),
        ("/healthz", None),  # too short to be worth it
    ],
)
def test_pages_are_compressed_and_records_are_not(client, path, encoding):
    answer = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    assert answer.headers.get("Content-Encoding") == encoding


def test_who_cannot_read_it_gets_the_page_as_it_is(client):
    answer = client.get("/studies", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in answer.headers
    assert answer.text == client.get("/studies", headers={"Accept-Encoding": "gzip"}).text


def test_figures_are_compressed(client):
    finished = client.get("/v1/experiments").json()["items"][0]["id"]
    answer = client.get(f"/experiments/{finished}/figures/curves.json", headers={"Accept-Encoding": "gzip"})
    assert (answer.status_code, answer.headers.get("Content-Encoding")) == (200, "gzip")


def test_streams_of_events_are_not_held_back():
    def told(request: Request) -> StreamingResponse:
        def events() -> Iterator[str]:
            yield "data: " + "x" * LEAST_BYTES + "\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    with TestClient(CompressionMiddleware(Starlette(routes=[Route("/events", told)]))) as client:
        answer = client.get("/events", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers
    assert answer.text.endswith("x\n\n")
