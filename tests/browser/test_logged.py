"""Runs of several tools become one experiment with a verdict, in a browser."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import main
from api.client import start_run
from tests.browser.expecting import expect
from tests.sources.study import FILES, STEPS, loss, write_mlflow_runs

pytestmark = pytest.mark.browser
NAME = "Is this difference real?"


def bench(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def trackers(site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an experiment of W&B, MLflow and TensorBoard folders as the libraries wrote them, a Trainer's run
    and a loop of one's own."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    runs = tmp_path / "mlruns"
    write_mlflow_runs(MlflowClient(runs.as_uri()))
    options = ("--experiment", NAME, "--url", site.url)
    bench("import", "tensorboard", str(FILES / "tensorboard"), *options)
    bench("import", "wandb", str(FILES / "wandb"), *options)
    bench("import", "mlflow", str(runs), *options)
    bench("import", str(FILES / "trainer_state"), *options)
    for seed in (1, 2, 3):
        with start_run(experiment=NAME, candidate="lion", lr=0.001, seed=seed, folder=tmp_path / "runs") as run:
            for step in STEPS:
                run.log(step=step, val_loss=loss(seed, 0.05, step))
    bench("import", str(tmp_path / "runs"), "--url", site.url)
    return f"{site.url}/experiments/{site.external_runs.experiment(NAME).id}"


def test_trackers_a_trainer_and_a_loop_are_one_experiment_with_a_verdict_which_can_be_deleted(
    eyes, site, trackers: str
) -> None:
    watched = eyes.look()
    page = watched.open(site.url)
    page.get_by_role("link", name=NAME).click()
    expect(page.locator("[data-drawn]")).to_have_count(1)
    assert page.url == trackers
    watched.open(f"{trackers}?baseline=adamw", figures=1)
    rows = page.locator("section", has=page.get_by_role("heading", name="Verdicts")).locator("tbody tr")
    row_by_candidate = {row.split()[0]: row for row in rows.all_inner_texts()}
    assert set(row_by_candidate) == {"muon", "lion", "adamw", "sgd", "adamw_torch"}
    for name in ("muon", "lion"):
        assert "lower than adamw" in row_by_candidate[name] and "n = 3" in row_by_candidate[name]
    assert {"logged", "imported"} <= set(page.locator(".title-row").inner_text().split())
    assert page.locator(".concerns").is_visible(), "what speaks against it"
    assert page.locator("#figure-panel-0 .js-plotly-plot, #figure-panel-0.js-plotly-plot").count() >= 1
    phone = eyes.look(width=390, theme="dark")
    assert phone.open(trackers, figures=1).evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#edit summary").click()
    page.get_by_label("Labels, separated by commas").fill("paper")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="paper").click()
    expect(page.get_by_role("link", name=NAME)).to_be_visible()
    assert "label=paper" in page.url
    page.goto(trackers)
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No experiment yet")).to_be_visible()
    assert watched.complaints == phone.complaints == []
