"""The client's contract with the OpenAPI document: each verb asks for an operation of it, and reads its example answer.

The examples are what the real service answers (test_openapi_document.py asks it again); so neither side can change
alone.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.client.client import Client
from orchestrator.external_runs import LinesBatch, RunHeader
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest
from orchestrator.webhooks.records import WebhookRequest
from tests.factories.serving import open_services
from tests.integration.api_service import comparison_fields

OF_OTHER_VERBS = frozenset(
    {
        "close",
        "watch",
        "watch_run",
        "dataframe",
        "series_dataframe",
        "points_dataframe",
        "export",
        "file",
        "apply_to_run",
    }
)
"""They are made of the others, listen to a stream, or read a file of Parquet."""
GIVEN: dict[str, Any] = {
    "model": "gpt2-nano",
    "experiment_id": "k3v9m2x710",
    "experiment_ids": ["k3v9m2x710"],
    "by": "candidate",
    "run_id": "k3v9m2x710-0000",
    "run_ids": ["k3v9m2x710-0000"],
    "webhook_id": "k3v9m2x711",
    "key_id": "k3v9m2x712",
    "view_id": "k3v9m2x714",
    "address": "/runs?q=state%3Dfailed",
    "spec": comparison_fields(),
    "change": {"note": "The first look."},
    "text": "The first look.",
    "action": RunAction.CANCEL,
    "metric": "train_loss",
    "external_id": "muon-seed-1",
    "batch": LinesBatch(run=RunHeader(experiment="muon against adamw", candidate="muon"), part="first"),
    "attempt": 1,
    "form": "csv",
}
NAMES = {"study": "optimizer-comparison", "save_view": "What failed", "document": "report", "figure": "curves"}
WANTED = {
    "create_key": KeyRequest(label="CI"),
    "add_webhook": WebhookRequest(url="https://hooks.example.org/bench"),
}
NOT_FOR_THE_CLIENT = {
    *(f"POST /v1/attempts/{{run_id}}/{{attempt}}/{verb}" for verb in ("hello", "heartbeat", "points", "checkpoint")),
    *(f"POST /v1/attempts/{{run_id}}/{{attempt}}/{verb}" for verb in ("finish", "stopped", "fail")),
    "GET /v1/experiments/{experiment_id}/stream",  # `watch`
    "GET /v1/experiments/{experiment_id}/exports/{name}",  # `export`
    "GET /v1/runs/{run_id}/exports/{name}",  # `points_dataframe` has the same
    "GET /v1/runs/{run_id}/files/{name}",  # `file`
    "GET /metrics",
}


class Asked(httpx2.MockTransport):
    """Answers as the document's examples do, and keeps which operations were asked for."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(self._answer)
        self.routes: set[str] = set()
        self._operations = [
            (method.upper(), path, re.compile(re.sub(r"\{\w+\}", "[^/]+", path.replace(".", r"\."))), operation)
            for path, methods in sorted(document["paths"].items(), key=lambda item: "{" in item[0])
            for method, operation in methods.items()
        ]

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        route, operation = next(
            (f"{method} {template}", operation)
            for method, template, pattern, operation in self._operations
            if method == request.method and pattern.fullmatch(path)
        )
        self.routes.add(route)
        needless = {"accept", "accept-encoding", "connection", "user-agent", "host", "content-length", "content-type"}
        known = {each["name"].lower() for each in operation.get("parameters", ())}
        assert set(request.url.params) <= known, route
        assert {name for name in request.headers if name not in needless} <= known | {"authorization"}, route
        for status, answer in operation["responses"].items():
            for media, content in answer.get("content", {}).items():
                if status.startswith("2") and "example" in content:
                    body = {"json": content["example"]} if media == "application/json" else {"text": content["example"]}
                    return httpx2.Response(int(status), headers={"Content-Type": media}, **body)
        raise AssertionError(f"{route} has no example")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with open_services(tmp_path_factory.mktemp("contract")) as (services, _):
        return create_app(services).openapi()


def arguments(name: str, verb: Any) -> Iterator[Any]:
    for each in list(inspect.signature(verb).parameters.values())[1:]:
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            yield "tiny"
        elif each.default is inspect.Parameter.empty:
            yield {"name": NAMES.get(name), "wanted": WANTED.get(name)}.get(each.name) or GIVEN[each.name]


def test_every_verb_reads_what_the_document_shows_and_none_is_missing(document: dict[str, Any], tmp_path: Path):
    asked = Asked(document)
    with Client("http://127.0.0.1:1", key="adapm_x") as client:
        client._http.close()
        client._http = httpx2.Client(base_url=client.url, transport=asked, headers={"Authorization": "Bearer x"})
        for name, verb in inspect.getmembers(Client, inspect.isfunction):
            if not name.startswith("_") and name not in OF_OTHER_VERBS:
                assert getattr(client, name)(*arguments(name, verb)) is not None, name
        client.document(GIVEN["experiment_id"], "document.json")
        client.document(GIVEN["experiment_id"], "references.bib")
    operations = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert operations - asked.routes == NOT_FOR_THE_CLIENT
