"""The data folder that the witnesses keep still opens: an earlier version left it in the middle of work."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.witnesses.product import OpenedFolder, client_of, opened, unpacked

STATUSES = {"succeeded", "failed", "cancelled", "paused", "queued", "leased", "running", "retry_wait"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedFolder]:
    """The stored folder, brought to today's schema."""
    path: Path = unpacked(tmp_path_factory.mktemp("witnesses"))
    with opened(path) as opened_folder:
        yield opened_folder


@pytest.fixture(scope="module")
def client(folder: OpenedFolder) -> Iterator[TestClient]:
    with client_of(folder.app) as test_client:
        yield test_client


def test_the_stored_folder_is_sound_in_todays_schema(folder: OpenedFolder) -> None:
    assert folder.faults() == ()


def test_the_stored_folder_has_every_kind_and_every_state(client: TestClient) -> None:
    experiments = client.get("/v1/experiments").json()["items"]
    assert {experiment["kind"] for experiment in experiments} == {"comparison", "scaling", "sweep"}
    assert {status for experiment in experiments for status in experiment["counts"]["by_status"]} >= STATUSES
    assert len(client.get("/v1/experiments", params={"deleted": "true"}).json()["items"]) == 1


def test_every_page_of_the_stored_folder_is_shown(client: TestClient) -> None:
    home = client.get("/")
    assert home.status_code == 200
    listed = set(re.findall(r'"/experiments/([0-9a-z]{10})"', home.text))
    assert listed == {experiment["id"] for experiment in client.get("/v1/experiments").json()["items"]}
    for experiment_id in sorted(listed):
        runs = client.get("/v1/runs", params={"experiment_id": experiment_id, "limit": 1}).json()["items"]
        for address in (f"/experiments/{experiment_id}", f"/runs/{runs[0]['id']}"):
            page = client.get(address)
            assert page.status_code == 200, (address, page.text)
