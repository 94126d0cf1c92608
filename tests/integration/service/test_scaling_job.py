"""A scaling experiment through the real service: three tiny models, trained on Ray, become a law."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.bundles.board import write_board
from api.bundles.publication import publish
from api.client.client import Client
from orchestrator.jobs import RunStatus
from tests.factories.bundles import KEY
from tests.factories.scaling import scaling_spec
from worker.records.result import Verdict

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(service_url: str) -> Iterator[Client]:
    with Client(service_url, timeout_seconds=300) as client:
        yield client


def test_three_sizes_are_trained_and_fitted(client: Client, tmp_path: Path) -> None:
    """One candidate, one rate, one seed at each size: the least that a law can be fitted to."""
    spec = scaling_spec(
        candidates=[{"optimizer": "adapm", "learning_rates": [0.008]}],
        seeds=[1],
        budgets=[{"tokens": 5_120}],
        warmup_share=0.1,
        workload={
            "data": {"sequence_length_tokens": 64},
            "budget": {"batch_sequences": 4},
            "evaluation": {"every_steps": 10, "sequences": 8},
        },
    )
    id = client.submit(spec).experiment.id
    for _ in client.watch(id, pause_seconds=0.5):
        pass
    runs = client.runs(experiment_id=id)
    assert [(run.model, run.status) for run in runs] == [
        ("gpt2-nano", RunStatus.SUCCEEDED),
        ("gpt2-micro", RunStatus.SUCCEEDED),
        ("gpt2-tiny", RunStatus.SUCCEEDED),
    ]
    assert {run.result.verdict for run in runs if run.result} == {Verdict.CONVERGED}
    report = client.fit([id], predict=["1e9"])
    json.dumps(report.model_dump(mode="json"), allow_nan=False)
    (fit,) = report.fits
    assert [point.parameters for point in fit.points] == [81_216, 274_640, 858_880]
    assert report.form == "n0" and set(fit.coefficients) == {"A", "alpha"}
    assert all(cell.comparison.complete for cell in client.cells(id))
    # Twenty steps with one seed show no fall of the loss with size: nothing is predicted, and why is said.
    assert fit.no_law is not None and fit.predictions == ()
    published = publish(client, id, tmp_path / "bundle", KEY).document
    assert published.fit is not None and len(published.cells) == 3
    board = write_board([tmp_path], tmp_path / "site")
    assert (board.bundles, board.lines, board.refused) == (1, (), {}), "a candidate alone has no verdict"
