"""Reading over the real service: sorted lists, exports and metrics; HEAD, which answers as GET does."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow.csv
import pyarrow.parquet
import pytest

from api.client.client import Client
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


SAME = ("Content-Length", "Content-Type", "Cache-Control", "Content-Disposition")


def test_head_is_get_without_a_body(http: httpx2.Client, leases: tuple[Lease, ...]) -> None:
    run_id = leases[0].run_id
    experiment, run = f"/v1/experiments/{run_id.rpartition('-')[0]}", f"/v1/runs/{run_id}"
    paths = (
        *("/v1/experiments", "/v1/runs", "/v1/models", "/v1/openapi.json", experiment, run, f"{run}/points"),
        *("/", "/queue", experiment.removeprefix("/v1"), "/healthz", "/metrics", "/docs"),
        *("/v1/experiments/none", "/v1/runs?nonsense=1", "/nowhere", "/runs/none"),
        *(f"{experiment}/exports/results.{form}" for form in ("csv", "parquet")),
    )
    for path in paths:
        page, head = http.get(path), http.head(path)
        assert (head.status_code, head.content) == (page.status_code, b""), path
        if path != "/metrics":  # which has counted meanwhile
            assert [head.headers.get(name) for name in SAME] == [page.headers.get(name) for name in SAME], path
    counted = 'adapm_bench_request_seconds_count{method="HEAD",route="/v1/models",status="200"} 1.0'
    assert counted in http.get("/metrics").text
