"""The whole service, pages included, is closed to foreign host names and to other sites' pages."""

import httpx2
import pytest

from tests.integration.api_service import Service, comparison_fields, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def http(service: Service):
    with httpx2.Client(base_url=service.url, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/experiments", "/v1/openapi.json"])
def test_no_page_answers_to_a_rebound_name(http, path: str):
    assert http.get(path, headers={"Host": "rebound.example"}).status_code == 400


def test_a_page_of_another_site_cannot_submit(http):
    answer = http.post("/v1/experiments", json=comparison_fields(), headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert http.get("/v1/experiments").json()["items"] == []


def test_a_page_of_another_port_cannot_cancel(http):
    experiment_id = http.post("/v1/experiments", json=comparison_fields()).json()["experiment"]["id"]
    origin = {"Origin": "http://127.0.0.1:1"}
    assert http.post(f"/v1/experiments/{experiment_id}/cancel", headers=origin).status_code == 403
    assert http.get(f"/v1/experiments/{experiment_id}").json()["counts"]["by_status"] == {"queued": 4}


def test_our_own_page_can_submit(http, service: Service):
    answer = http.post("/v1/experiments", json=comparison_fields(), headers={"Origin": service.url})
    assert answer.status_code == 201


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/runs/none", "/experiments/none", "/static/none"])
def test_every_answer_has_the_security_headers(http, path: str):
    headers = http.get(path).headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe-inline" not in headers["Content-Security-Policy"].partition("script-src")[2].partition(";")[0]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_no_other_site_may_read(http):
    answer = http.get("/v1/experiments", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = http.options(
        "/v1/experiments", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert (preflight.status_code, "Access-Control-Allow-Origin" in preflight.headers) == (405, False)
