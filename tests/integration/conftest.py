"""A service for each file of tests, and who talks to it; a file that needs another one has fixtures of these names."""

import socket
from collections.abc import Callable, Iterator

import httpx2
import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from api.client.client import Client
from tests.integration.api_service import Service, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx2.Client]:
    # No certificates are read, which takes longer than a request: the service has none.
    with httpx2.Client(base_url=service.url, trust_env=False, verify=False, timeout=60) as client:
        yield client


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as rest_client:
        yield rest_client


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a service that takes calls and answers none: an attempt waits for its hello."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def cli(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call `adapm-bench` with words, against the service."""
    monkeypatch.setenv("ADAPM_BENCH_URL", service.url)
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *words, **more: CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False, **more)
