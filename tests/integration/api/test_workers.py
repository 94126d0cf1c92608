"""The workers' protocol over the real service: a token opens one attempt; a run goes from lease to leaderboard."""

import socket
from typing import Any

import httpx2
import pytest

from api.client.client import Client
from orchestrator.jobs import Lease, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from tests.factories import stores
from tests.integration.api_service import Service, comparison_fields
from worker.records.protocol import PointsBatch
from worker.records.result import Point, Result


@pytest.fixture(scope="module")
def leased(service: Service) -> Lease:
    """A run that no worker has begun, for requests that change nothing."""
    _, (lease,) = claim(service)
    return lease


@pytest.fixture(scope="module")
def running(service: Service) -> Lease:
    """A run whose lease is held, for requests that change nothing."""
    _, (lease,) = claim(service)
    service.attempts.hello(lease.run_id, lease.attempt, lease.token)
    return lease


def claim(service: Service, **changes: Any) -> tuple[str, tuple[Lease, ...]]:
    """An experiment, and the leases of all of its runs; of one, unless `changes` say otherwise."""
    fields = comparison_fields() | {"candidates": comparison_fields()["candidates"][:1], "seeds": [1]} | changes
    experiment = service.experiments.submit(ComparisonSpec.model_validate(fields)).experiment
    return experiment.id, stores.claim(service.queue, cpus=64, limit=experiment.counts.total)


def path(lease: Lease, verb: str) -> str:
    return f"/v1/attempts/{lease.run_id}/{lease.attempt}/{verb}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def made_result(lease: Lease, val_loss: float) -> Result:
    return stores.result(final_val_loss=val_loss).model_copy(update={"spec_hash": lease.spec.content_hash()})


def test_a_run_goes_from_lease_to_leaderboard_over_http(service: Service, http: httpx2.Client):
    experiment_id, leases = claim(service, **comparison_fields())
    for position, lease in enumerate(leases):
        with httpx2.Client(base_url=service.url, headers=bearer(lease.token), trust_env=False, timeout=60) as worker:
            assignment = worker.post(path(lease, "hello"), json={}).json()
            assert assignment["run_id"] == lease.run_id
            assert assignment["spec"] == lease.spec.model_dump(mode="json")
            assert http.get(f"/v1/runs/{lease.run_id}").json()["status"] == "running"
            beat = worker.post(path(lease, "heartbeat"), json={"step": 1, "device_seconds": 0.5})
            assert beat.json() == {"command": "continue"}
            points = [Point(step=step, tokens=256 * step, train_loss=5.0 - step / 10) for step in range(11)]
            batch = PointsBatch.from_points(0, points).model_dump(mode="json", exclude_none=True)
            assert [worker.post(path(lease, "points"), json=batch).status_code for _ in range(2)] == [204, 204]
            notice = {"step": 5, "path": "c.safetensors", "size_bytes": 10, "sha256": "0" * 64}
            assert worker.post(path(lease, "checkpoint"), json=notice).status_code == 204
            result = made_result(lease, val_loss=3.0 - position / 100)
            assert (
                worker.post(
                    path(lease, "finish"),
                    content=result.model_dump_json(),
                    headers={"Content-Type": "application/json"},
                ).status_code
                == 204
            )
        run = http.get(f"/v1/runs/{lease.run_id}").json()
        assert (run["status"], run["result"]) == ("succeeded", result.model_dump(mode="json"))
        page = http.get(f"/v1/runs/{lease.run_id}/points", params={"after_step": 7}).json()
        assert page == {"items": [point.model_dump(mode="json") for point in points[8:]], "next": None}
        (attempt,) = http.get(f"/v1/runs/{lease.run_id}/attempts").json()["items"]
        assert attempt["outcome"] == "succeeded"
    comparison = http.get(f"/v1/experiments/{experiment_id}/comparison").json()
    assert comparison["complete"] is True
    assert {row["candidate"]: row["val_loss"]["mean"] for row in comparison["rows"]} == pytest.approx(
        {"adamw": 2.99, "adapm": 2.98}
    )


def test_observations_travel_with_points_and_are_paged_by_step(service: Service, http: httpx2.Client):
    """A page holds whole steps; the client puts the pages together."""
    _, (lease,) = claim(service)
    service.attempts.hello(lease.run_id, lease.attempt, lease.token)
    columns = {"step": [1, 2, 3, 4], "tokens": [1, 2, 3, 4]}
    observations = [
        {"step": step, "probe": probe, "blocks": {"wte": {"norm": step / 3}}}
        for step in (1, 2, 3, 4)
        for probe in ("gradient-sparsity", "residual")
    ]
    body = {"sequence": 0, "columns": columns, "observations": observations}
    assert http.post(path(lease, "points"), json=body, headers=bearer(lease.token)).status_code == 204
    address = f"/v1/runs/{lease.run_id}/observations"
    first = http.get(address, params={"steps": 3}).json()
    second = http.get(address, params={"steps": 3, "after_step": first["next"]}).json()
    assert (first["items"], second) == (observations[:6], {"items": observations[6:], "next": None})
    with Client(service.url) as client:
        assert [observation.model_dump() for observation in client.observations(lease.run_id)] == observations


BODIES: dict[str, dict[str, Any]] = {
    "heartbeat": {"step": 1},
    "checkpoint": {"step": 1, "path": "p", "size_bytes": 1, "sha256": "0"},
}
VERBS = ("hello", "heartbeat", "points", "checkpoint", "finish", "stopped", "fail")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("token", [None, "wrong"])
def test_nothing_of_a_strangers_body_is_waited_for(service: Service, leased: Lease, verb: str, token: str | None):
    """The answer comes though not one byte of the promised 10 MiB has."""
    address = httpx2.URL(service.url)
    with socket.create_connection((address.host, address.port), timeout=60) as stranger:
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {path(leased, verb)} HTTP/1.1\r\nHost: {address.host}\r\n{shown}Content-Length: {10 * 2**20}\r\n\r\n"
        )
        stranger.sendall(head.encode())
        assert stranger.recv(65536).startswith(b"HTTP/1.1 409" if token else b"HTTP/1.1 401")


@pytest.mark.parametrize("attempt", ["0", "x", "99999999999"])
def test_an_attempt_that_cannot_be_is_404(http: httpx2.Client, leased: Lease, attempt: str):
    answer = http.post(f"/v1/attempts/{leased.run_id}/{attempt}/hello", json={}, headers=bearer(leased.token))
    assert answer.status_code == 404


REFUSED = {
    b'{"step": [1, 2], "tokens": [1, 2], "train_loss": [3.5, NaN]}': ("/columns/train_loss/1", "nan"),
    b'{"step": [1, 2], "tokens": [1, 2], "train_loss": [-Infinity, 3.5]}': ("/columns/train_loss/0", "-inf"),
    b'{"step": [1, NaN], "tokens": [1, 2]}': ("/columns/step/1", "nan"),
    b'{"step": [1, null], "tokens": [1, 2]}': ("/columns/step/1", None),
    b'{"step": [1, 1.5], "tokens": [1, 2]}': ("/columns/step/1", 1.5),
    b'{"step": [1, -1], "tokens": [1, 2]}': ("/columns/step/1", -1),
    b'{"step": [1, 2], "tokens": [1, 9007199254740993]}': ("/columns/tokens/1", "9007199254740993"),
    b'{"step": [1, 2], "tokens": [1, "2"]}': ("/columns/tokens/1", "2"),
    b'{"step": [1, 2], "tokens": [1, 2], "lr": [true, 0.1]}': ("/columns/lr/0", True),
    b'{"step": [1, 2], "tokens": [1, 2], "lr": 0.1}': ("/columns/lr", 0.1),
    b'{"step": [1, 2], "tokens": [1]}': ("/columns/tokens", 1),
    b'{"step": [1, 2], "tokens": [1, 2], "lr": [0.1]}': ("/columns/lr", 1),
    b'{"step": [1, 2], "tokens": [1, 2], "lost": [1, 2]}': ("/columns/lost", [1, 2]),
    b'{"step": [], "tokens": [1]}': ("/columns/step", []),
    b'{"step": [1, 2]}': ("/columns/tokens", None),
}
"""Columns that are not points, and where the fault is with the value that is found there."""


def test_columns_that_are_no_points_are_refused_and_write_nothing(service: Service, running: Lease):
    headers = bearer(running.token) | {"Content-Type": "application/json"}
    with httpx2.Client(base_url=service.url, headers=headers, trust_env=False, timeout=60) as worker:
        for columns, (pointer, value) in REFUSED.items():
            body = b'{"sequence": 0, "columns": ' + columns + b"}"
            answer = worker.post(path(running, "points"), content=body)
            (fault,) = answer.json()["errors"]
            assert (answer.status_code, fault["pointer"], fault["value"]) == (422, pointer, value), columns
        for body in (b"", b"{", b"[]", b"\xff"):
            answer = worker.post(path(running, "points"), content=body)
            assert answer.status_code == 422 and answer.json()["errors"], body
    assert service.runs.points(running.run_id) == ()


@pytest.mark.parametrize(
    ("verb", "field", "value"),
    [
        ("heartbeat", "step", True),
        ("heartbeat", "device_seconds", "3"),
        ("checkpoint", "size_bytes", True),
        ("finish", "steps", -258837020690928369664),
        ("finish", "tokens", "10"),
        ("finish", "device_seconds", True),
    ],
)
def test_what_is_no_number_is_refused_and_ends_no_run(
    service: Service, http: httpx2.Client, running: Lease, verb: str, field: str, value: object
):
    """A truth value and a text of digits are none; a count that no database holds is a fault of its sender."""
    body = BODIES[verb] if verb in BODIES else made_result(running, 3.0).model_dump(mode="json")
    answer = http.post(path(running, verb), json=body | {field: value}, headers=bearer(running.token))
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["pointer"]) == (422, f"/{field}")
    assert service.runs.get(running.run_id).status is RunStatus.RUNNING
