"""Experiments and runs over the real service: submit, refuse, list, look, compare, cancel."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import NOUNS
from api.routes import attempts
from api.routes.context import JsonRoute
from optim import catalog
from tests.integration.api_service import comparison_fields, serving
from worker.catalog import presets

PROBLEM = "application/problem+json"


def submit(http: httpx2.Client, **changes: Any) -> dict[str, Any]:
    answer = http.post("/v1/experiments", json=comparison_fields(**changes))
    assert answer.status_code == 201, answer.text
    experiment: dict[str, Any] = answer.json()["experiment"]
    return experiment


def test_submitting_queues_every_run_and_says_where(http):
    answer = http.post("/v1/experiments", json=comparison_fields(name="Ümlaut <b>"))
    submission = answer.json()
    experiment = submission["experiment"]
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/experiments/{experiment['id']}"
    assert submission["created"] is True
    assert experiment["name"] == "Ümlaut <b>"
    assert experiment["counts"] == {
        "total": 4,
        "by_status": {"queued": 4},
        "by_verdict": {},
        "growing": False,
    }
    assert http.get(answer.headers["Location"]).json() == experiment


def test_validating_says_what_it_would_be_and_stores_nothing(http):
    original_items = http.get("/v1/experiments").json()["items"]
    fine = http.post("/v1/experiments/validate", json=comparison_fields()).json()
    assert (fine["faults"], fine["runs"], fine["steps"]) == ([], 4, 40)
    faulty = http.post("/v1/experiments/validate", json=comparison_fields(seeds=[]))
    assert faulty.status_code == 200
    assert [fault["pointer"] for fault in faulty.json()["faults"]] == ["/seeds"]
    assert http.post("/v1/experiments/validate", json=[1]).json()["faults"][0]["pointer"] == ""
    assert http.get("/v1/experiments").json()["items"] == original_items


def test_every_faulty_field_is_named_at_once_with_pointer_value_and_what_is_allowed(http):
    fields = comparison_fields(seeds=[], sedes=[1])
    fields["workload"]["model"] = "gpt5"
    fields["candidates"] = [
        {"optimizer": "adamm", "learning_rates": [0.001, -1]},
        {"optimizer": "adamw", "learning_rates": [0.001], "options": {"betta/1": 0.9}},
    ]
    answer = http.post("/v1/experiments", json=fields)
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, PROBLEM)
    problem = answer.json()
    assert problem["type"] == "urn:adapm-bench:problem:invalid"
    expected: tuple[tuple[str, object, str], ...] = (
        ("/workload/model", "gpt5", presets.names()[0]),
        ("/candidates/0/optimizer", "adamm", "adamw?"),
        ("/candidates/0/learning_rates/1", -1, "0"),
        ("/candidates/1/options/betta~11", 0.9, "beta1?"),
        ("/seeds", [], "1"),
        ("/sedes", [1], "seeds?"),
    )
    for fault, (pointer, value, named) in zip(problem["errors"], expected, strict=True):
        assert (fault["pointer"], fault["value"], fault["source"]) == (pointer, value, "body")
        assert named in fault["allowed"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "character 1"),
        (b"null", "application/json"),
        (b"", "application/json"),
        (b'{"name": "\\ud800", "\\ud800": 1}', ""),
        (b'{"name": NaN, "seeds": [Infinity, 1e400, -1e400]}', ""),
        (b'{"name": "x", "seeds": [%s]}' % (b"9" * 4000), ""),
        pytest.param(b"\xc3\x28", "UTF-8", id="not UTF-8"),
        pytest.param(b'{"name": ' + b"[" * 200_000, "UTF-8", id="deeply nested"),
        pytest.param(b'{"seeds": [%s]}' % (b"9" * 10_000), "UTF-8", id="an integer of 10,000 digits"),
    ],
)
def test_bodies_that_are_no_specification_are_refused_in_plain_json(http, body: bytes, named: str):
    answer = http.post("/v1/experiments", content=body, headers={"Content-Type": "application/json"})
    problem = json.loads(answer.content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, PROBLEM)
    assert problem["errors"] and named in problem["errors"][0]["allowed"]


def test_every_route_for_users_refuses_unknown_parameters():
    routes = [route for noun in NOUNS if noun is not attempts for route in noun.router.routes]
    assert [route for route in routes if not isinstance(route, JsonRoute)] == []


@pytest.mark.parametrize("key", ["", "x" * 129, "with space"])
def test_a_malformed_idempotency_key_is_refused(http, key: str):
    answer = http.post("/v1/experiments", json=comparison_fields(), headers={"Idempotency-Key": key})
    (fault,) = answer.json()["errors"]
    assert answer.status_code == 422
    assert (fault["source"], fault["pointer"], fault["value"]) == ("header", "/Idempotency-Key", key)


@pytest.mark.parametrize(
    ("path", "pointer", "named"),
    [
        ("/v1/experiments?limit=0", "/limit", ""),
        ("/v1/experiments?limit=ten", "/limit", ""),
        ("/v1/experiments?before=../x", "/before", ""),
        ("/v1/runs?status=flying", "/status", ""),
        ("/v1/runs?limit=1001", "/limit", ""),
        ("/v1/points?metric=train_loss", "/run", "required"),
        ("/v1/points?run=a&metric=nonsense", "/metric", "train_loss"),
        ("/v1/points?run=a&metric=step", "/metric", "train_loss"),
        ("/v1/points?run=a%20b&metric=lr", "/run/0", ""),
        ("/v1/points?run=a&metric=lr&buckets=0", "/buckets", "1"),
        ("/v1/runs?experiment=x&limit=1", "/experiment", "experiment_id?"),
        ("/v1/runs?x~/y=1", "/x~0~1y", "experiment_id"),
        ("/v1/experiments/none?limit=1", "/limit", "none here"),
    ],
)
def test_malformed_and_unknown_parameters_are_refused_by_name(http, path: str, pointer: str, named: str):
    answer = http.get(path)
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, PROBLEM)
    assert (fault["source"], fault["pointer"]) == ("query", pointer) and named in fault["allowed"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/experiments/none",
        "/v1/experiments/none/comparison",
        "/v1/experiments/none/stream",
        "/v1/runs/none",
        "/v1/runs/none/points",
        "/v1/runs/none/events",
        "/v1/runs/none/attempts",
        "/v1/points?run=none&metric=lr",
        "/v1/experiments/none/exports/series.csv",
        "/v1/experiments/none/exports/secrets.csv",
        "/v1/runs/none/exports/series.parquet",
        "/v1/runs/none/exports/secrets.parquet",
        "/v1/experiments/%00",
        "/v1/runs/a%0Ab",
        "/v1/nothing",
        "/v1/experiments/",
    ],
)
def test_what_does_not_exist_is_404(http, path: str):
    answer = http.get(path)
    problem = answer.json()
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, PROBLEM)
    assert (problem["title"], problem["status"]) == ("Not Found", 404)
    assert problem["detail"].endswith(".") or "none" in problem["detail"]


def test_the_catalog_is_what_specifications_may_name(http):
    optimizers = http.get("/v1/optimizers").json()["items"]
    assert [optimizer["name"] for optimizer in optimizers] == list(catalog.names())
    assert [model["name"] for model in http.get("/v1/models").json()["items"]] == list(presets.names())
    assert http.get("/v1/datasets").json()["items"][0]["name"] == "python-stdlib"


def test_the_reference_page_lists_every_operation_and_loads_nothing_foreign(http):
    answer = http.get("/docs", timeout=120)  # the first one makes the document
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    for path, methods in http.get("/v1/openapi.json").json()["paths"].items():
        assert all(f"<code>{method.upper()} {path}</code>" in answer.text for method in methods)
    addresses = re.findall(r'(?:src|href|action)="([^"]*)"', answer.text)
    assert addresses and all(re.match(r"#|/(?!/)", address) for address in addresses)


def test_a_broken_store_is_503_and_not_a_crash(tmp_path: Path):
    with serving(tmp_path) as service, httpx2.Client(base_url=service.url, trust_env=False) as http:
        for file in tmp_path.glob("bench.sqlite3*"):
            file.write_bytes(b"not a database" * 1000)
        answer = http.get("/healthz")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:adapm-bench:problem:store-unavailable")
