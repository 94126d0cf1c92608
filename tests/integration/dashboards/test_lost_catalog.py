"""Stored data does not depend on the catalog, limits or fields of its time."""

import hashlib
import html
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from api.client.messages import read
from api.records import Page
from orchestrator.records import AnyExperiment
from orchestrator.store.integrity import checksum
from orchestrator.store.tables import experiments, run_specs, runs
from tests.witnesses.crawl import SELDOM, rest_addresses
from tests.witnesses.product import client_of, opened, unpacked
from worker.schema import canonical_json

STATUSES = {"succeeded", "failed", "cancelled", "paused", "queued", "leased", "running", "retry_wait"}
LOST = {"adapm": "lost-optimizer", "python-stdlib": "lost-dataset", "byte": "lost-tokenizer"}
"""Names that every kind of experiment in the stored folder has."""


def forget(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification as if an earlier version had taken other names, larger numbers and one more field."""
    text = json.dumps(spec)
    for name, lost in LOST.items():
        if name == "byte" and spec.get("kind") == "scaling":
            continue  # how many parameters its sizes have is counted from it
        text = text.replace(f'"{name}"', f'"{lost}"')
    fields: dict[str, Any] = json.loads(text)
    if spec.get("kind") != "scaling":  # whose sizes are presets
        fields["workload"]["model"] = "lost-model"
    fields["workload"]["evaluation"]["sequences"] = 10**12
    return fields | {"lost_field": 1}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with opened(unpacked(tmp_path_factory.mktemp("lost"))) as folder:
        assert folder.faults() == (), "an earlier version left it in the middle of work, and it is sound today"
        with folder.database.writing() as connection:
            for id, spec in connection.execute(sa.select(experiments.c.id, experiments.c.spec)).all():
                text = canonical_json(forget(json.loads(spec))).decode()
                values = {"spec": text, "spec_hash": hashlib.sha256(text.encode()).hexdigest()}
                connection.execute(sa.update(experiments).where(experiments.c.id == id).values(values))
            for id, spec in connection.execute(sa.select(run_specs.c.run_id, run_specs.c.spec)).all():
                text = canonical_json(forget(json.loads(spec) | {"kind": "scaling"})).decode()
                of_run = sa.update(run_specs).where(run_specs.c.run_id == id)
                connection.execute(of_run.values(spec=text, checksum=checksum(text)))
            for column in (runs.c.optimizer, runs.c.candidate):
                connection.execute(sa.update(runs).where(column == "adapm").values({column.name: LOST["adapm"]}))
        with client_of(folder.app) as test_client:
            yield test_client


def test_every_page_and_answer_is_there(client: TestClient) -> None:
    listed = client.get("/v1/experiments").json()["items"]
    pages = ["/", "/runs", "/queue", f"/fits?experiments={listed[0]['id']}", "/metrics"]
    for experiment in listed:
        pages += [
            f"/experiments/{experiment['id']}",
            f"/new?from={experiment['id']}",
            f"/experiments/{experiment['id']}/clone",
        ]
        pages += [f"/runs/{experiment['id']}-0000", f"/runs/{experiment['id']}-0001"]
    urls = [address for address in rest_addresses(client) if not SELDOM.search(address)]
    broken = {address: answer.text for address in (*pages, *urls) if (answer := client.get(address)).status_code >= 500}
    assert broken == {}
    assert {experiment["kind"] for experiment in listed} == {"comparison", "scaling", "sweep"}
    assert {status for experiment in listed for status in experiment["counts"]["by_status"]} >= STATUSES
    assert len(client.get("/v1/experiments", params={"deleted": "true"}).json()["items"]) == 1
    assert all(experiment["spec"]["workload"]["data"]["dataset"] == LOST["python-stdlib"] for experiment in listed)


def test_it_is_marked_and_cannot_begin_again(client: TestClient) -> None:
    for experiment in client.get("/v1/experiments").json()["items"]:
        assert experiment["refused"] in html.unescape(client.get(f"/experiments/{experiment['id']}").text)
        refused = client.post(f"/v1/experiments/{experiment['id']}/clone", json={})
        assert refused.status_code == 409
        if experiment["name"] == "Galore, and everything that goes wrong":
            answer = client.post(f"/v1/experiments/{experiment['id']}/retry")
            assert answer.status_code == 409
            assert "refused today" in answer.json()["detail"]
    assert "refused today" in client.get("/").text


def test_a_client_takes_what_the_service_accepted(client: TestClient) -> None:
    """Its own catalog and limits are none of the service's."""
    answer = client.get("/v1/experiments")
    read(httpx2.Response(200, content=answer.content, request=httpx2.Request("GET", "/")), Page[AnyExperiment])
