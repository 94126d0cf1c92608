"""The power in `validate` after an experiment on the same workload has ended: REST, page and command line."""

from pathlib import Path

import httpx2
import pytest
import yaml
from typer.testing import CliRunner

from api.cli import main
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.analysis.design import NOISE_UNKNOWN
from orchestrator.analysis.power import chance_shown, chance_within, least_difference, least_seeds
from orchestrator.kinds.comparison import ComparisonSpec
from tests.factories.stores import result
from tests.integration.api_service import Service, comparison_fields, end_all

LOSSES = {"adamw": {1: 3.00, 2: 3.02, 3: 2.98}, "adapm": {1: 2.951, 2: 2.969, 3: 2.93}}
"""Differences of -0.049, -0.051 and -0.050: a standard deviation of 0.001."""
SD = 0.001
CANDIDATES = [{"optimizer": "adamw", "learning_rates": [0.001]}, {"optimizer": "adapm", "learning_rates": [0.001]}]


def test_a_design_is_told_what_it_can_show_once_its_workload_was_measured(service: Service, tmp_path: Path) -> None:
    fields = comparison_fields(candidates=CANDIDATES, seeds=[1, 2, 3])
    with httpx2.Client(base_url=service.url) as http:
        unknown = http.post("/v1/experiments/validate", json=fields).json()
        assert (unknown["power"], unknown["power_unknown"]) == (None, NOISE_UNKNOWN)
        assert http.post("/v1/experiments", json=fields).status_code == 201
        end_all(service, lambda spec: result(final_val_loss=LOSSES[spec.optimizer.name][spec.seed]))

        power = http.post("/v1/experiments/validate", json=fields).json()["power"]
        assert power["paired_sd"] == pytest.approx(SD, rel=1e-6)
        assert (power["seeds"], power["comparisons"], power["experiments"], power["margin"]) == (3, 1, 1, 0.01)
        error = evaluation_error(ComparisonSpec.model_validate(fields).workload.validation_tokens())
        found_at_once = power["detectable_difference"]
        assert found_at_once == pytest.approx(least_difference(3, SD, 0.05, error), rel=1e-6)
        assert power["seeds_for_margin"] == least_seeds(lambda n: chance_within(0.01, n, SD, 0.05, error))
        assert power["seeds_for_difference"] == least_seeds(lambda n: chance_shown(0.01, n, SD, 0.05, error))

        longer = dict(fields, workload=dict(fields["workload"], budget={"steps": 20}))
        assert http.post("/v1/experiments/validate", json=longer).json()["power"] is None
        single_fields = dict(fields, candidates=CANDIDATES[:1])
        nothing = http.post("/v1/experiments/validate", json=single_fields).json()
        assert (nothing["power"], nothing["power_unknown"]) == (None, None), "one candidate is compared with nobody"
        tuned = http.post("/v1/experiments/validate", json=dict(fields, tuning={})).json()
        assert (tuned["runs"], tuned["growing"]) == (2 * (8 * 3 + 3), False), "exactly: trials × tuning seeds + seeds"
        assert tuned["power"]["detectable_difference"] == found_at_once
        one_seed = http.post("/v1/experiments/validate", json=dict(fields, seeds=[1])).json()["power"]
        assert one_seed["detectable_difference"] is None

        page = http.get("/new", params={"from": http.get("/v1/experiments").json()["items"][0]["id"]})
        assert "<dt>Can show</dt><dd>with 3 seeds" in page.text
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(fields))
    output = CliRunner().invoke(main, ["validate", str(path), "--url", service.url], catch_exceptions=False).stdout
    assert "with 3 seeds" in output
    assert "1 earlier experiment" in output
