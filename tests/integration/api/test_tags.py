"""Answers of the REST interface have a tag; who has them already is told so, without a body."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.middleware.transfer import matches
from orchestrator.jobs import RunAction
from tests.factories.playing import Player
from tests.factories.serving import open_services
from tests.factories.stores import comparison_spec

Http = tuple[TestClient, Player, str]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    with open_services(tmp_path_factory.mktemp("tags")) as (services, player):
        experiment_id = services.experiments.submit(comparison_spec(seeds=(1, 2))).experiment.id
        player.finish(1)
        app = create_app(services, stopping=lambda: True)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            yield client, player, experiment_id


def tagged_paths(experiment_id: str) -> tuple[str, ...]:
    mine, run = f"/v1/experiments/{experiment_id}", f"/v1/runs/{experiment_id}-0000"
    return (
        *("/v1/experiments", "/v1/runs", "/v1/optimizers", "/v1/models", "/v1/datasets", "/v1/studies", "/v1/keys"),
        *("/v1/openapi.json", "/v1/webhooks", f"{mine}/comparison", f"{mine}/figures"),
        *(f"{mine}/comparison/csv", f"{mine}/references.bib", run, f"{run}/points", f"{run}/events"),
        *(f"{run}/attempts", f"{run}/observations", f"/v1/points?run={experiment_id}-0000&metric=train_loss"),
    )


def test_every_answer_in_one_piece_has_a_tag_that_is_good_until_it_changes(house: Http):
    client, _, experiment_id = house
    for path in tagged_paths(experiment_id):
        first = client.get(path)
        assert first.status_code == 200, path
        tag = first.headers["ETag"]
        assert tag.startswith('W/"')
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag), path
        assert "content-length" not in again.headers and "content-type" not in again.headers
        assert again.headers["X-Content-Type-Options"] == "nosniff"
        other = client.get(path, headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.content) == (200, first.content)


def test_head_is_get_without_a_body(house: Http):
    client, _, experiment_id = house
    pages = ("/", "/queue", f"/experiments/{experiment_id}", "/healthz", "/metrics", "/docs")
    missing = ("/v1/experiments/none", "/v1/runs?nonsense=1", "/nowhere", "/runs/none")
    exports = tuple(f"/v1/experiments/{experiment_id}/exports/results.{form}" for form in ("csv", "parquet"))
    for path in (*tagged_paths(experiment_id), *pages, *missing, *exports):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        same = ("ETag", "Content-Length", "Content-Type", "Cache-Control", "Content-Disposition")
        if path != "/metrics":  # which has counted meanwhile
            assert [head.headers.get(name) for name in same] == [got.headers.get(name) for name in same], path
    tag = client.get("/v1/models").headers["ETag"]
    assert client.head("/v1/models", headers={"If-None-Match": tag}).status_code == 304
    counted = 'adapm_bench_request_seconds_count{method="HEAD",route="/v1/models",status="200"} 1.0'
    assert counted in client.get("/metrics").text


def test_a_change_makes_another_tag(house: Http):
    client, player, experiment_id = house
    path = f"/v1/runs/{experiment_id}-0001"
    tag = client.get(path).headers["ETag"]
    player.services.runs.apply(f"{experiment_id}-0001", RunAction.CANCEL)
    changed = client.get(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag


def test_an_experiments_tag_is_its_revision_and_never_answers_304(house: Http):
    """It guards labels and the note against lost updates; its runs move on under the same one."""
    client, _, experiment_id = house
    path = f"/v1/experiments/{experiment_id}"
    tag = client.get(path).headers["ETag"]
    assert tag.strip('"').isdecimal()
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_streams_problems_and_changes_have_none(house: Http):
    client, _, experiment_id = house
    for answer in (
        client.get("/v1/runs/none", headers={"If-None-Match": "*"}),
        client.get(f"/v1/experiments/{experiment_id}/stream", headers={"If-None-Match": "*"}),
        client.post(f"/v1/experiments/{experiment_id}/cancel", headers={"If-None-Match": "*"}),
        client.get("/healthz"),
    ):
        assert "ETag" not in answer.headers
        assert answer.status_code != 304


@pytest.mark.parametrize(
    ("known", "same"),
    [('W/"a"', True), ('"a"', True), ('"b", W/"a"', True), ("*", True), ('"b"', False), ("a", False), ("", False)],
)
def test_tags_are_compared_weakly(known: str, same: bool):
    assert matches(known, 'W/"a"') is same
