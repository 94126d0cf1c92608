"""Reading over the real service: sorted lists, exports and metrics."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import httpx2
import pyarrow.csv
import pyarrow.parquet
import pytest

from api.client.client import Client
from orchestrator.export.files import write_results
from orchestrator.jobs import Lease, LeasePolicy
from orchestrator.kinds.comparison import Candidate
from tests.factories.stores import batch, claim, comparison_spec, result
from tests.integration.api_service import Service, serving

FORMULA = "=HYPERLINK('http://x')"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service whose leases outlast the file, however slow the machine is."""
    with serving(tmp_path_factory.mktemp("service"), LeasePolicy(ttl_seconds=3600)) as running:
        yield running


@pytest.fixture(scope="module")
def leases(service: Service) -> tuple[Lease, ...]:
    return two_runs(service)


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """Yield a service for a test that adds points, or that counts."""
    with serving(tmp_path) as running:
        yield running


def two_runs(service: Service) -> tuple[Lease, ...]:
    """Two runs of an experiment, the first one finished; both have points, and a third one waits."""
    spec = comparison_spec(seeds=(1, 2, 3), steps=5_000)
    hostile = (Candidate(optimizer="adamw", label=FORMULA, learning_rates=(1e-3,)),)
    service.experiments.submit(spec.model_copy(update={"candidates": hostile}))
    leases = claim(service.queue, cpus=2, limit=2)
    for lease in leases:
        service.attempts.hello(lease.run_id, 1, lease.token)
        service.attempts.append_points(lease.run_id, 1, lease.token, batch(0, range(4_000)))
    service.attempts.finish(leases[0].run_id, 1, leases[0].token, result(steps=5_000))
    return leases


def test_lists_are_sorted_and_filtered_page_by_page(http: httpx2.Client, leases: tuple[Lease, ...]) -> None:
    first = http.get("/v1/runs", params={"sort": "-seed", "model": "gpt2-tiny", "limit": 2}).json()
    second = http.get("/v1/runs", params={"sort": "-seed", "limit": 2, "after": first["next"]}).json()
    assert [run["seed"] for run in first["items"] + second["items"]] == [3, 2, 1]
    assert http.get("/v1/runs", params={"sort": "spec"}).status_code == 422
    runs = http.get("/v1/runs", params={"candidate": FORMULA, "status": "succeeded"}).json()["items"]
    assert [run["id"] for run in runs] == [leases[0].run_id]


def test_very_many_unknown_parameters_are_refused_at_little_cost(http: httpx2.Client) -> None:
    answer = http.get("/v1/runs?" + "&".join(f"experiment{number}=x" for number in range(2_000)))
    assert (answer.status_code, len(answer.json()["errors"])) == (422, 8)


def test_a_change_with_unknown_parameters_changes_nothing(http: httpx2.Client, leases: tuple[Lease, ...]) -> None:
    path = f"/v1/runs/{leases[1].run_id}"
    assert http.post(f"{path}/cancel?force=1").status_code == 422
    assert http.get(path).json()["status"] == "running"


def test_pages_and_their_figures_take_what_is_added_to_their_addresses(
    http: httpx2.Client, leases: tuple[Lease, ...]
) -> None:
    assert http.get("/?utm_source=x").status_code == 200
    path = f"/v1/experiments/{leases[0].run_id.rpartition('-')[0]}"
    assert http.get(f"{path}/figures/curves.csv?x=tokens&added=1").status_code == 200


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_has_every_run_and_every_point(
    service: Service, leases: tuple[Lease, ...], tmp_path: Path, form: str
) -> None:
    read = pyarrow.parquet.read_table if form == "parquet" else pyarrow.csv.read_csv
    experiment = service.runs.get(leases[0].run_id).experiment_id
    with Client(service.url) as client:
        for table in ("results", "series"):
            client.export(experiment, f"{table}.{form}", tmp_path / table)
    results, series = (read(tmp_path / table).to_pydict() for table in ("results", "series"))
    assert results["status"] == ["succeeded", "running", "queued"]
    assert results["result.final_val_loss"] == [2.5, None, None]
    assert results["result.peak_memory.host_rss_bytes"] == [500_000_000, None, None]
    assert len(series["step"]) == 8_000
    assert series["step"][:4_000] == series["step"][4_000:] == list(range(4_000))
    assert series["run_id"][0] == leases[0].run_id
    assert series["train_loss"] == [3.0] * 8_000
    assert series["host_rss_bytes"][0] is None or series["host_rss_bytes"][0] == ""


def test_many_exports_at_once_hold_up_no_heartbeat(
    service: Service, leases: tuple[Lease, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked for them: two are at work, some wait without a thread, the others are told to come again."""
    experiment, at_work, may_end = service.runs.get(leases[0].run_id).experiment_id, Semaphore(0), Event()

    def write_slowly(*arguments: Any) -> None:
        at_work.release()
        may_end.wait()
        write_results(*arguments)

    monkeypatch.setattr("orchestrator.export.files.write_results", write_slowly)
    path = f"/v1/experiments/{experiment}/exports/results.csv"
    with ThreadPoolExecutor(45) as callers, httpx2.Client(base_url=service.url, trust_env=False, timeout=60) as http:
        try:
            futures = [callers.submit(http.get, path) for _ in range(45)]
            assert at_work.acquire(timeout=60) and at_work.acquire(timeout=60)
            assert next(as_completed(futures)).result().status_code == 429
            beat = {"step": 1, "device_seconds": 0.5}
            token = {"Authorization": f"Bearer {leases[1].token}"}
            heard = http.post(f"/v1/attempts/{leases[1].run_id}/1/heartbeat", json=beat, headers=token)
            assert heard.json() == {"command": "continue"}
            assert http.get("/v1/runs").status_code == 200
            assert not at_work.acquire(blocking=False)
        finally:
            may_end.set()
        answers = [answer.result() for answer in futures]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(429, "2")}
    assert len(answers) - len(refused) >= 16


def test_metrics_tell_the_queue_the_attempts_and_what_was_taken(own_service: Service) -> None:
    _, running = two_runs(own_service)
    body = batch(1, range(4_000, 4_250)).model_dump_json()
    with httpx2.Client(base_url=own_service.url, trust_env=False, timeout=60) as http:
        path = f"/v1/attempts/{running.run_id}/1/points"
        http.post(path, content=body, headers={"Authorization": f"Bearer {running.token}"})
        http.get("/v1/runs/nothing")
        http.get("/v1/experiments/nothing/figures/curves.svg")
        answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = set(answer.text.splitlines())
    assert {
        'adapm_bench_runs{status="queued"} 1.0',
        'adapm_bench_runs{status="running"} 1.0',
        'adapm_bench_runs{status="failed"} 0.0',
        'adapm_bench_attempts_ended_total{outcome="succeeded"} 1.0',
        'adapm_bench_attempts_ended_total{outcome="lost"} 0.0',
        "adapm_bench_claim_wait_seconds_count 2.0",
        "adapm_bench_dispatch_seconds_count 2.0",
        "adapm_bench_cpus_at_work 1.0",
        "adapm_bench_gpus_at_work 0.0",
        "adapm_bench_export_backlog 2.0",
        "adapm_bench_points_total 250.0",
        'adapm_bench_request_seconds_count{method="GET",route="/v1/runs/{run_id}",status="404"} 1.0',
        'adapm_bench_request_seconds_count{method="GET",route="/v1/experiments/{experiment_id}/figures/{name}.{form}",'
        'status="404"} 1.0',
    } <= lines
