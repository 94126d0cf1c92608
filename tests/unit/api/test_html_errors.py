"""Errors are a page for browsers, and a problem for everybody else; a name in it is never code."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.middleware.answers import InternalErrorMiddleware
from api.middleware.guards import USER_BODY_BYTES, BodyLimitMiddleware
from api.problems import RefusedError, handle_errors
from orchestrator.errors import NotFoundError, StoreError

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    faults = {
        "/gone": NotFoundError("there is no run '<script>alert(1)</script>'"),
        "/busy": StoreError("the database cannot be reached"),
        "/closed": RefusedError(429, "throttled", "ask again in 3 s", {"Retry-After": "3"}),
        "/broken": ZeroDivisionError("the secret of the house"),
    }

    def route(path: str, error: Exception) -> None:
        @app.api_route(path, methods=["GET", "POST"])
        @app.api_route(f"/v1{path}", methods=["GET", "POST"])
        def fail() -> None:
            raise error

    for path, error in faults.items():
        route(path, error)
    handle_errors(app)
    app.add_middleware(BodyLimitMiddleware)
    app.add_middleware(InternalErrorMiddleware)
    return TestClient(app)


@pytest.mark.parametrize(
    ("path", "status", "heading", "told"),
    [
        ("/nothing", 404, "Not found", "There is nothing at /nothing."),
        ("/gone", 404, "Not found", "There is no run &#39;&lt;script&gt;alert(1)&lt;/script&gt;&#39;"),
        ("/busy", 503, "Service unavailable", "The database cannot be reached"),
        ("/closed", 429, "Too many requests", "Ask again in 3 s"),
        ("/broken", 500, "Internal server error", "The service failed at this request; its log says why, under "),
    ],
)
def test_a_browser_reads_a_page(client: TestClient, path: str, status: int, heading: str, told: str):
    answer, problem = client.get(path, headers=BROWSER), client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert f"<h1>{heading}</h1>" in answer.text and told in answer.text
    assert "secret" not in answer.text and "<script>alert" not in answer.text
    assert answer.headers.get("retry-after") == problem.headers.get("retry-after")
    assert problem.headers["content-type"] == "application/problem+json"
    for response in (client.get(f"/v1{path}", headers=BROWSER), client.post(path, headers=BROWSER)):
        assert response.headers["content-type"] == "application/problem+json"


def test_the_form_of_a_page_is_answered_with_a_page(client: TestClient):
    """A browser leaves its page for whatever comes; what a script sends accepts everything."""
    for path, status, heading in (("/busy", 503, "Service unavailable"), ("/broken", 500, "Internal server error")):
        page = client.post(path, headers=BROWSER, data={"name": "x"})
        assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert f"<h1>{heading}</h1>" in page.text
        for response in (
            client.post(path, data={"name": "x"}),
            client.post(f"/v1{path}", headers=BROWSER, data={"n": "x"}),
        ):
            assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")


def test_a_form_that_is_too_large_is_answered_with_a_page(client: TestClient):
    text = {"yaml": "#" * (USER_BODY_BYTES + 1)}
    page, problem = client.post("/large", headers=BROWSER, data=text), client.post("/large", data=text)
    assert (page.status_code, problem.status_code) == (413, 413)
    assert "1 MiB" in page.text
    assert problem.headers["content-type"] == "application/problem+json"
