"""A run's files over REST: what is listed comes as it lies there, and nothing else does."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests.factories.serving import open_services
from tests.factories.stores import claim, comparison_spec
from worker.records.protocol import CheckpointNotice
from worker.spec.run import RunSpec

STATE = b"PK\x03\x04" + bytes(range(256)) * 9


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[TestClient, str, Path]]:
    """A client, the id of a run that trains, and its folder, with two logs and a checkpoint."""
    with open_services(tmp_path) as (services, player):
        services.experiments.submit(comparison_spec())
        (lease,) = claim(player.queue, cpus=1, limit=1)
        services.attempts.hello(lease.run_id, 1, lease.token)
        folder = services.storage.runs_folder() / lease.run_id
        for name, content in (
            ("logs/attempt-1.log", b"<script>alert(1)</script>\n"),
            ("logs/attempt-1-process-1.log", b"of the second process\n"),
            ("checkpoints/step-000000003.pt", STATE),
            ("result.json", b"somebody else's"),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        for step, directory in ((3, f"{folder}/checkpoints"), (4, "/elsewhere/checkpoints")):
            path = f"{directory}/step-{step:09d}.pt"
            notice = CheckpointNotice(step=step, path=path, size_bytes=len(STATE), sha256="5f" * 32, attempt=1)
            services.attempts.checkpoint(lease.run_id, 1, lease.token, notice)
        with TestClient(create_app(services), base_url="http://127.0.0.1") as client:
            yield client, lease.run_id, folder


def test_what_is_listed_comes_as_it_is(run: tuple[TestClient, str, Path]) -> None:
    client, run_id, _ = run
    listed = {file["name"]: file for file in client.get(f"/v1/runs/{run_id}/files").json()["items"]}
    assert list(listed) == [
        "specification.json", "attempt-1.log", "attempt-1-process-1.log", "step-000000003.pt", "step-000000004.pt"
    ]  # fmt: skip
    for name, file in listed.items():
        answer = client.get(f"/v1/runs/{run_id}/files/{name}")
        if name == "step-000000004.pt":
            assert (file["is_here"], file["place"]) == (False, "/elsewhere/checkpoints/step-000000004.pt")
            assert answer.status_code == 404
            continue
        assert answer.headers["content-disposition"] == f'attachment; filename="{run_id}-{name}"'
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert len(answer.content) == file["size_bytes"] == int(answer.headers["content-length"])
    assert client.get(f"/v1/runs/{run_id}/files/step-000000003.pt").content == STATE
    spec = RunSpec.model_validate_json(client.get(f"/v1/runs/{run_id}/files/specification.json").content)
    assert spec.model_dump(mode="json") == client.get(f"/v1/runs/{run_id}").json()["spec"]
    page = client.get(f"/runs/{run_id}").text
    assert f'href="/v1/runs/{run_id}/files/step-000000003.pt"' in page
    assert "/files/step-000000004.pt" not in page


def test_no_link_is_followed_and_no_other_file_is_reached(run: tuple[TestClient, str, Path], tmp_path: Path) -> None:
    """A worker's machine may be somebody else's: what lies in a run's folder is not believed."""
    client, run_id, folder = run
    secret = tmp_path / "secret"
    secret.write_bytes(STATE)
    for name in ("logs/attempt-1.log", "checkpoints/step-000000003.pt"):
        (folder / name).unlink()
        (folder / name).symlink_to(secret)
    os.link(secret, folder / "logs" / "attempt-2.log")
    (folder / "logs" / "attempt-3.log").mkdir()
    os.mkfifo(folder / "logs" / "attempt-4.log")
    listed = {file["name"]: file for file in client.get(f"/v1/runs/{run_id}/files").json()["items"]}
    assert set(listed) == {
        "specification.json", "attempt-1-process-1.log", "step-000000003.pt", "step-000000004.pt"
    }  # fmt: skip
    assert not listed["step-000000003.pt"]["is_here"]
    for name in (
        "attempt-1.log", "attempt-2.log", "attempt-3.log", "attempt-4.log", "step-000000003.pt", "step-000000005.pt",
        "..%2f..%2fbench.sqlite3", "..%2Fsecret", "%2Fetc%2Fpasswd", "points.parquet", "result.json",
    ):  # fmt: skip
        assert client.get(f"/v1/runs/{run_id}/files/{name}").status_code in (404, 422), name
    (folder / "logs").rename(folder / "moved")
    (folder / "logs").symlink_to(folder / "moved")
    assert client.get(f"/v1/runs/{run_id}/files/attempt-1-process-1.log").status_code == 404
