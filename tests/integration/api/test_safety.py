"""The whole service, pages included, is closed to foreign host names and to other sites' pages; no text fails in it."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from orchestrator.jobs import LeasePolicy
from orchestrator.services.composition import Services
from orchestrator.store.queue.queue import Queue
from orchestrator.webhooks.policy import WebhookPolicy
from tests.factories.openapi import body_examples, operations
from tests.factories.services import make_services
from tests.factories.stores import DATABASES, claim, comparison_spec, requested_database, result
from worker.records.protocol import CheckpointNotice, Command, Failure, FailureKind, Heartbeat, Stopped


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/experiments", "/v1/openapi.json"])
def test_no_page_answers_to_a_rebound_name(http, path: str):
    assert http.get(path, headers={"Host": "rebound.example"}).status_code == 400


def test_no_other_site_may_read(http):
    answer = http.get("/v1/experiments", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = http.options(
        "/v1/experiments", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert (preflight.status_code, "Access-Control-Allow-Origin" in preflight.headers) == (405, False)


# NUL, which is text for SQLite and none for PostgreSQL


@pytest.fixture(scope="module", params=DATABASES)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TestClient, Services, Queue]]:
    """The application over each of the two databases; to make its document takes it a second."""
    folder = tmp_path_factory.mktemp("both")
    with requested_database(request, folder) as database:
        services = make_services(database, folder)
        with TestClient(create_app(services, stopping=lambda: True), base_url="http://127.0.0.1") as client:
            yield client, services, Queue(database, LeasePolicy())


WORKER = "POST /v1/attempts/{run_id}/{attempt}"
WORKERS: dict[str, list[Any]] = {
    f"{WORKER}/{verb}": [record.model_dump(mode="json")]
    for verb, record in (
        ("heartbeat", Heartbeat(note="a note")),
        ("checkpoint", CheckpointNotice(step=5, path="checkpoints/step-5", size_bytes=10, sha256="5f" * 32)),
        ("finish", result()),
        ("stopped", Stopped(command=Command.PAUSE, step=3, device_seconds=4.2)),
        ("fail", Failure(kind=FailureKind.PROGRAM, message="RuntimeError", device_seconds=4.2)),
    )
}


def with_nul(value: Any) -> Iterator[Any]:
    """The value once for each string in it, with that string ending in NUL."""
    if isinstance(value, str):
        yield f"{value}\0"
    elif isinstance(value, dict):
        yield from ({**value, name: changed} for name, part in value.items() for changed in with_nul(part))
    elif isinstance(value, list):
        for position, part in enumerate(value):
            yield from ([*value[:position], changed, *value[position + 1 :]] for changed in with_nul(part))


def filled(path: str, names: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "x"), path)


def test_nul_in_a_query_is_refused_on_both_databases(both: tuple[TestClient, Services, Queue]):
    client, services, _ = both
    experiment_id = services.experiments.submit(comparison_spec()).experiment.id
    names = {"experiment_id": experiment_id, "run_id": f"{experiment_id}-0000"}
    sent = Counter[str]()
    for operation, details in operations(client.get("/v1/openapi.json").json()):
        method, _, path = operation.partition(" ")
        for name in (parameter["name"] for parameter in details.get("parameters", ()) if parameter["in"] == "query"):
            answer = client.request(method, filled(path, names), params={name: "a\0b"})
            assert answer.status_code == 422, (operation, name, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            sent[name] += 1
    assert {"optimizer", "model", "candidate", "label", "before", "after", "experiment", "cell"} <= set(sent)
    for page in ("/?label=%00", f"/experiments/{experiment_id}?metric=%00&%00=1", "/compare?experiment=%00"):
        answer = client.get(page, headers={"Accept": "text/html"})
        assert (answer.status_code, "U+0000" in answer.text) == (422, True)


def test_nul_in_an_address_is_nowhere_on_both_databases(both: tuple[TestClient, Services, Queue]):
    client, _, _ = both
    for operation, _ in operations(client.get("/v1/openapi.json").json()):
        method, _, path = operation.partition(" ")
        if "{" in path:
            answer = client.request(method, re.sub(r"\{\w+\}", "a%00b", path), json={})
            assert 400 <= answer.status_code < 500, (operation, answer.text)
    for page in ("/experiments/a%00b", "/runs/a%00b", "/experiments/a%00b/edit", "/studies/a%00b"):
        assert client.get(page).status_code == 404


def test_nul_in_a_body_fails_on_neither_database(both: tuple[TestClient, Services, Queue]):
    """Each string of every body that the document has an example of, workers' bodies included."""
    client, services, queue = both
    services.webhooks.policy = WebhookPolicy.parse("https://hooks.example/", "")
    services.experiments.submit(comparison_spec(seeds=range(200)))
    sent = Counter[str]()
    examples = body_examples(client.get("/v1/openapi.json").json())
    for operation, bodies in (examples | WORKERS).items():
        method, _, path = operation.partition(" ")
        for body in (changed for example in bodies for changed in with_nul(example)):
            headers, names = {}, {"experiment_id": services.experiments.page(limit=1)[0].id}
            if path.startswith("/v1/attempts/"):
                (lease,) = claim(queue, cpus=1, limit=1)
                headers = {"Authorization": f"Bearer {lease.token}"}
                names = {"run_id": lease.run_id, "attempt": str(lease.attempt)}
                client.post(filled("/v1/attempts/{run_id}/{attempt}/hello", names), headers=headers)
            answer = client.request(method, filled(path, names), json=body, headers=headers)
            assert answer.status_code < 500, (operation, body, answer.text)
            sent[path.rpartition("/")[2]] += 1
    assert {"experiments", "keys", "webhooks", "checkpoint", "finish", "fail", "clone", "{experiment_id}"} <= set(sent)
