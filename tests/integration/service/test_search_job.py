"""A comparison that tunes more than the rate through the real service: both phases are trained, and told everywhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.bundles.publication import publish
from api.cli import main
from api.client.client import Client
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate
from orchestrator.kinds.tuning import Tuning
from tests.factories.bundles import KEY
from tests.integration.small_comparison import small_regression

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(service_url: str) -> Iterator[Client]:
    with Client(service_url, timeout_seconds=300) as client:
        yield client


def test_settings_are_tried_and_the_best_one_is_judged_on_fresh_seeds(
    client: Client, service_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Tuning(seeds=(7, 8, 9), search=("lr", "beta2", "clip"), method="random", trials=2, replicates=3)
    candidates = [Candidate(optimizer=each, learning_rates=(4e-3,)) for each in ("adamw", "adapm")]
    spec = small_regression(*candidates, name="searched", seeds=(1, 2, 3)).model_copy(update={"tuning": search})
    id = client.submit(spec).experiment.id
    for _ in client.watch(id, pause_seconds=0.5):
        pass
    runs = client.runs(experiment_id=id)
    assert [run.status for run in runs] == [RunStatus.SUCCEEDED] * (2 * 3 * 2 + 2 * 3)
    comparison = client.compare(id)
    assert comparison.complete
    for row in comparison.rows:
        mine = [run for run in runs if run.candidate == row.candidate and run.spec]
        for replicate, (tuning_seed, judging_seed) in enumerate(((7, 1), (8, 2), (9, 3))):
            settings = [dict(setting) for setting in spec.tuner(row.candidate, replicate).ask({})]
            tried = {run.lr: run for run in mine if run.seed == tuning_seed}
            assert [spec.searched_parameters(0, run.spec) for run in tried.values() if run.spec] == settings
            losses = {lr: run.result.final_val_loss for lr, run in tried.items() if run.result}
            assert len(set(losses.values())) == 2, "each setting trains differently"
            best = min(tried, key=lambda lr, losses=losses: losses[lr])  # type: ignore[misc]
            judged = next(run for run in mine if run.seed == judging_seed)
            assert judged.spec and spec.searched_parameters(0, judged.spec) in settings
            assert judged.lr == best
        assert row.difference is None or row.difference.n == 3
    monkeypatch.setenv("ADAPM_BENCH_URL", service_url)
    shown = CliRunner().invoke(main, ["compare", id], catch_exceptions=False)
    assert shown.exit_code == 0
    assert spec.name in shown.stdout
    assert publish(client, id, tmp_path / "bundle", KEY).document.comparison == comparison
