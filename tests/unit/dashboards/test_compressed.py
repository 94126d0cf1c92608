"""What crosses the wire compressed: pages and figures, no records, no streams."""

import pytest
from fastapi.testclient import TestClient

from api.app import create_app


@pytest.fixture
def client(bench):
    """A client of the whole application."""
    with TestClient(create_app(bench), base_url="http://127.0.0.1") as found:
        yield found


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
