"""Behind a proxy that publishes the service below a path: no address of any page or answer leaves that path."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from starlette.testclient import TestClient

from api.client import Client
from api.middleware.forwarded import ForwardedMiddleware
from orchestrator.keys import KeyRequest, Scope
from tests.factories.serving import served
from tests.integration.api_service import comparison_fields
from tests.witnesses.crawl import ID
from tests.witnesses.product import ORIGIN, OpenedFolder, client_of, opened, unpacked

ROOT = "/user/ada%40home/proxy/8321"
ONE_OF_A_SORT = re.compile(r"(?<=/studies/)[a-z-]+|(?<=/models/)[^/]+")
TEXTS = {"value", "title", "aria-label", "data-label", "placeholder", "content"}
"""Attributes that say something, instead of leading somewhere."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedFolder]:
    with opened(unpacked(tmp_path_factory.mktemp("below"))) as opened_folder:
        yield opened_folder


@pytest.fixture(params=["stripped", "left on"])
def client(folder: OpenedFolder, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    """A browser that sees the service below `ROOT`: the proxy takes the path off and says so, or does neither."""
    says_so = request.param == "stripped"
    app = ForwardedMiddleware(folder.app, "testclient", "" if says_so else ROOT)
    with client_of(app) as test_client:
        if says_so:
            test_client.headers["X-Forwarded-Prefix"] = ROOT
            plain = test_client.request
            test_client.request = lambda method, url, **options: plain(method, url.removeprefix(ROOT), **options)  # type: ignore[method-assign]
        yield test_client


class Addresses(HTMLParser):
    """The values of a page's attributes that are addresses of this service."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if value and value.startswith("/") and name not in TEXTS]
        self.links += [value for name, value in attrs if value and name in ("href", "action")]


def sort_of(address: str) -> str:
    """Pages alike but for their experiment, run or study."""
    return ONE_OF_A_SORT.sub("*", ID.sub("*", urlsplit(address).path))


@pytest.mark.parametrize("client", ["stripped"], indirect=True)
def test_every_page_leads_below_the_path(client: TestClient):
    """What answers sees the same request of either proxy; that it does, the tests below show."""
    waiting = [f"{ROOT}{path}" for path in ("/", "/login", "/docs", "/deleted", "/nothing-is-here")]
    sorts = {sort_of(address) for address in waiting}
    assets: set[str] = set()
    while waiting:
        address = waiting.pop()
        answer = client.get(address)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        page = Addresses(answer.text)
        outside = [url for url in page.found if not url.startswith(f"{ROOT}/")]
        assert not outside, (address, outside[:5])
        assets |= {url for url in page.found if "/static/" in url}
        for link in page.links:
            target = urljoin(address, link)
            if target.startswith(ROOT) and sort_of(target) not in sorts and not re.search("/v1/|/figures/", target):
                sorts.add(sort_of(target))
                waiting.append(target)
    assert {f"{ROOT}{path}" for path in ("/experiments/*", "/runs/*", "/studies/*", "/memory", "/new")} <= sorts
    assert [client.get(asset).status_code for asset in sorted(assets)] == [200] * len(assets)


def test_redirects_and_locations_lead_below_the_path(client: TestClient):
    response = client.post(f"{ROOT}/v1/experiments", json=comparison_fields())
    experiment_id = response.json()["experiment"]["id"]
    assert response.headers["Location"] == f"{ROOT}/v1/experiments/{experiment_id}"
    edited = client.post(f"{ROOT}/experiments/{experiment_id}/edit", data={"labels": "", "note": ""})
    assert edited.headers["Location"] == f"{ROOT}/experiments/{experiment_id}"


def test_programs_are_told_the_path(client: TestClient):
    assert client.get(f"{ROOT}/v1/openapi.json").json()["servers"] == [{"url": ROOT}]


@pytest.mark.parametrize("given", ["//evil.example", "https://evil.example", '/"><script>', "/a//b", "no-slash"])
def test_what_is_no_path_is_not_believed(folder: OpenedFolder, given: str):
    with client_of(ForwardedMiddleware(folder.app, "*")) as client:
        assert client.get("/", headers={"X-Forwarded-Prefix": given}).text == client.get("/").text


def test_only_a_trusted_proxy_is_believed(folder: OpenedFolder):
    with client_of(ForwardedMiddleware(folder.app, "10.0.0.1")) as client:
        page = client.get("/", headers={"X-Forwarded-Prefix": ROOT})
        assert ROOT not in page.text
        assert "servers" not in client.get("/v1/openapi.json", headers={"X-Forwarded-Prefix": ROOT}).json()


def test_a_login_below_the_path_is_for_that_path(tmp_path: Path):
    with opened(tmp_path) as folder, client_of(ForwardedMiddleware(folder.app, "*", ROOT)) as client:
        key = folder.services.keyring.create(KeyRequest(label="Ada", scope=Scope.ADMIN)).secret
        response = client.get(f"{ROOT}/runs", headers={"Accept": "text/html"})
        assert response.headers["Location"] == f"{ROOT}/login?next=/runs"
        form = {"key": key, "next": "/runs"}
        signed_in = client.post(f"{ROOT}/login", data=form, headers={"Origin": ORIGIN})
        assert signed_in.headers["Location"] == f"{ROOT}/runs"
        assert f"; Path={ROOT};" in signed_in.headers["Set-Cookie"]
        assert client.get(f"{ROOT}/runs").status_code == 200
        signed_out = client.post(f"{ROOT}/logout", headers={"Origin": ORIGIN})
        assert f"; Path={ROOT};" in signed_out.headers["Set-Cookie"]
        assert client.get(f"{ROOT}/runs", headers={"Accept": "text/html"}).status_code == 303


def test_the_client_works_below_the_path(tmp_path: Path):
    with served(tmp_path, root_path=ROOT) as site, Client(site.url) as client:
        experiment_id = client.submit(comparison_fields()).experiment.id
        site.player.finish()
        assert [experiment.id for experiment in client.watch(experiment_id)] == [experiment_id]
