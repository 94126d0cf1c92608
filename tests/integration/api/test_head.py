"""HEAD answers as GET does, without a body."""

from pathlib import Path

from starlette.testclient import TestClient

from api.app import create_app
from tests.factories.serving import open_services
from tests.factories.stores import comparison_spec

SAME = ("Content-Length", "Content-Type", "Cache-Control", "Content-Disposition")


def test_head_is_get_without_a_body(tmp_path: Path):
    with open_services(tmp_path) as (services, player):
        experiment_id = services.experiments.submit(comparison_spec(seeds=(1, 2))).experiment.id
        player.finish(1)
        experiment, run = f"/v1/experiments/{experiment_id}", f"/v1/runs/{experiment_id}-0000"
        paths = (
            *("/v1/experiments", "/v1/runs", "/v1/models", "/v1/openapi.json", experiment, run, f"{run}/points"),
            *("/", "/queue", f"/experiments/{experiment_id}", "/healthz", "/metrics", "/docs"),
            *("/v1/experiments/none", "/v1/runs?nonsense=1", "/nowhere", "/runs/none"),
            *(f"{experiment}/exports/results.{form}" for form in ("csv", "parquet")),
        )
        with TestClient(create_app(services), base_url="http://127.0.0.1") as client:
            for path in paths:
                page, head = client.get(path), client.head(path)
                assert (head.status_code, head.content) == (page.status_code, b""), path
                if path != "/metrics":  # which has counted meanwhile
                    assert [head.headers.get(name) for name in SAME] == [page.headers.get(name) for name in SAME], path
            counted = 'adapm_bench_request_seconds_count{method="HEAD",route="/v1/models",status="200"} 1.0'
            assert counted in client.get("/metrics").text
