"""Tuned comparisons, tables, profiles and scaling laws over the real service: REST, client and command line."""

import json
from typing import Any

import httpx2
import pytest

from api.client.client import Client
from orchestrator.kinds.comparison import ComparisonSpec
from tests.factories.stores import claim, result
from tests.integration.api_service import Service, comparison_fields
from worker.records.protocol import PointsBatch
from worker.records.result import Point

SIZES = (10**6, 10**7, 10**8, 10**9)
"""Model sizes that the played results claim."""
HOSTILE = "=1+1 & \\input{x} | _y_"


def play(service: Service, parameters: int) -> None:
    """End every run that is there or follows, with losses that fall as a power of the size; AdaPM is 1 % better."""
    while leases := claim(service.queue, cpus=64, limit=64):
        for lease in leases:
            spec = lease.spec
            better = 0.99 if spec.optimizer.name == "adapm" else 1.0
            loss = 12 * parameters**-0.08 * better * (1 + 0.2 * abs(spec.optimizer.lr - 0.002) + 1e-4 * spec.seed)
            service.attempts.hello(lease.run_id, lease.attempt, lease.token)
            points = (Point(step=0, tokens=0, val_loss=9.0), Point(step=10, tokens=10_240, val_loss=loss))
            batch = PointsBatch.from_points(sequence=0, points=points)
            service.attempts.append_points(lease.run_id, lease.attempt, lease.token, batch)
            ended = result(final_val_loss=loss).model_copy(update={"parameters": parameters, "tokens": 20 * parameters})
            service.attempts.finish(lease.run_id, lease.attempt, lease.token, ended)


def fields(name: str) -> dict[str, Any]:
    candidates = [{"optimizer": optimizer, "learning_rates": [0.002]} for optimizer in ("adamw", "adapm")]
    return comparison_fields(name=name, candidates=candidates, seeds=[1, 2, 3], tuning={"seeds": [0], "trials": 3})


@pytest.fixture(scope="module")
def ids(service: Service) -> tuple[str, ...]:
    """Four finished tuned comparisons, one for each size; what tells their workloads apart is the clipping."""
    experiment_ids = []
    for size in SIZES:
        spec_fields = fields(f"{HOSTILE} {size}")
        spec_fields["workload"] |= {"clip_grad_norm": 1e-6 * size}
        experiment_ids.append(service.experiments.submit(ComparisonSpec.model_validate(spec_fields)).experiment.id)
        play(service, size)
    return tuple(experiment_ids)


@pytest.mark.parametrize(("form", "suffix"), [("latex", "tex"), ("markdown", "md"), ("csv", "csv")])
def test_the_table_is_one_text_for_rest_client_page_and_command_line(service, client, cli, ids, form, suffix) -> None:
    rest = httpx2.get(f"{service.url}/v1/experiments/{ids[0]}/comparison/{form}", trust_env=False, verify=False)
    page = httpx2.get(f"{service.url}/experiments/{ids[0]}/table.{suffix}", trust_env=False, verify=False)
    assert rest.status_code == page.status_code == 200
    assert rest.headers["Content-Disposition"] == f'attachment; filename="comparison-{ids[0]}.{suffix}"'
    assert rest.text == page.text == client.comparison_table(ids[0], form)
    printed = cli("compare", ids[0], "--format", form)
    assert printed.exit_code == 0
    assert printed.stdout.splitlines() == rest.text.splitlines()


def test_scaling_laws_of_several_experiments(client: Client, cli, ids) -> None:
    report = client.fit(ids, form="n0", predict=[10**10])
    for fit in report.fits:
        assert fit.coefficients["alpha"].value == pytest.approx(0.08, abs=1e-3)
        assert fit.predictions[0].loss.value == pytest.approx(12 * 1e10**-0.08, rel=0.02)
    printed = cli("fit", *ids, "--form", "n0", "--predict", "1e10")
    assert printed.exit_code == 0
    assert "alpha" in printed.stdout and "10.0 G" in printed.stdout
    assert json.loads(cli("fit", *ids, "--form", "n0", "--predict", "1e10", "--json").stdout) == report.model_dump(
        mode="json"
    )


def test_profiles_of_several_comparisons(client: Client, cli, ids) -> None:
    report = client.profile(ids)
    assert [row.candidate for row in report.rows] == ["adapm", "adamw"]
    printed = cli("compare", *ids)
    assert printed.exit_code == 0
    assert "4 workloads" in printed.stdout
    assert json.loads(cli("compare", *ids, "--json").stdout) == report.model_dump(mode="json")


def test_a_file_of_several_experiments_is_refused_with_the_way_out(cli, ids) -> None:
    printed = cli("compare", *ids, "--format", "latex")
    assert (printed.exit_code, printed.stdout) == (2, "")
    assert "--format latex" in printed.stderr and "ID" in printed.stderr
    assert cli("compare", *ids, "--cell", "x").exit_code == 2, "a profile takes every cell"
