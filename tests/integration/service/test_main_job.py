"""The main job through the real service: submit, train on Ray, compare; the same numbers from REST, SQL and MLflow."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli import main
from api.client.client import Client
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate
from orchestrator.records import Comparison, RunRecord
from tests.factories.waiting import until
from tests.integration.small_comparison import small_comparison
from worker.records.result import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def client(service_url: str) -> Iterator[Client]:
    with Client(service_url) as client:
        yield client


@pytest.fixture(scope="module")
def experiment_id(client: Client) -> str:
    """A finished small comparison, of which one candidate's rate is far too high."""
    spec = small_comparison(optimizers=("adamw", "adapm-mini"))
    hot = Candidate(optimizer="adapm", learning_rates=(1e3,), label="hot")
    experiment = client.submit(spec.model_copy(update={"candidates": (*spec.candidates, hot)})).experiment
    for _ in client.watch(experiment.id, pause_seconds=0.3):
        pass
    return experiment.id


@pytest.fixture(scope="module")
def runs(client: Client, experiment_id: str) -> tuple[RunRecord, ...]:
    return client.runs(experiment_id=experiment_id)


@pytest.fixture(scope="module")
def comparison(client: Client, experiment_id: str) -> Comparison:
    return client.compare(experiment_id)


def test_every_run_succeeds_in_one_attempt(client: Client, runs: tuple[RunRecord, ...]) -> None:
    """Nothing was retried; what diverges is a result like those that fell below their loss before training."""
    assert [(run.status, run.attempt) for run in runs] == [(RunStatus.SUCCEEDED, 1)] * 6
    verdicts = {run.candidate: run.result.verdict for run in runs if run.result}
    converged = dict.fromkeys(("adamw", "adapm-mini"), Verdict.CONVERGED)
    assert verdicts == {**converged, "hot": Verdict.DIVERGED}
    assert all(client.points(run.id) for run in runs)


def test_the_seed_pairs_the_runs(runs: tuple[RunRecord, ...]) -> None:
    """Before the first step, runs of one seed have the same loss to the bit; seeds differ."""
    initial = {(run.seed, run.result.initial_val_loss) for run in runs if run.result}
    assert len(initial) == 2


def test_comparison_holds_every_candidate(comparison: Comparison) -> None:
    """Rows with means over both seeds; the baseline has no difference to itself; AdaPM-mini's state is small."""
    rows = {row.candidate: row for row in comparison.rows}
    assert comparison.complete
    assert set(rows) == {"adamw", "adapm-mini", "hot"}
    assert {name: row.val_loss and row.val_loss.n for name, row in rows.items()} == {
        "adamw": 2,
        "adapm-mini": 2,
        "hot": None,
    }
    assert rows["adamw"].difference is None
    assert rows["adapm-mini"].difference is not None
    mini, full = rows["adapm-mini"].optimizer_state_bytes, rows["adamw"].optimizer_state_bytes
    assert mini is not None
    assert full is not None
    assert mini < 0.08 * full


def test_sql_holds_the_numbers_that_rest_gives(service_folder: Path, runs: tuple[RunRecord, ...]) -> None:
    """The stored result of every run has the validation loss that the API tells."""
    with closing(sqlite3.connect(f"file:{service_folder / 'bench.sqlite3'}?mode=ro", uri=True)) as database:
        stored = {
            row[0]: json.loads(row[1])["final_val_loss"]
            for row in database.execute("select run_id, result from results")
        }
    loss_by_run = {run.id: run.result.final_val_loss for run in runs if run.result}
    assert {run_id: stored[run_id] for run_id in loss_by_run} == loss_by_run


def test_mlflow_holds_the_numbers_that_rest_gives(service_folder: Path, runs: tuple[RunRecord, ...]) -> None:
    """MLflow's own API finds every run once, with its result, its curve at full resolution and its parameters."""
    from mlflow.tracking import MlflowClient

    mlflow = MlflowClient(tracking_uri=f"sqlite:///{service_folder / 'mlflow.sqlite3'}")
    copies = until(lambda: _copies(mlflow, [run.id for run in runs]), "every run is exported")
    for run in runs:
        assert run.result is not None
        (copy,) = copies[run.id]
        assert copy.info.status == "FINISHED"
        assert copy.data.metrics.get("final_val_loss") == run.result.final_val_loss
        assert copy.data.metrics["optimizer_state_bytes"] == run.result.optimizer_state_bytes
        assert copy.data.params["optimizer.lr"] == ("1000.0" if run.candidate == "hot" else "0.001")
        assert len(mlflow.get_metric_history(copy.info.run_id, "train_loss")) == run.result.steps


def _copies(mlflow: Any, run_ids: list[str]) -> dict[str, list[Any]] | None:
    """MLflow's runs of each of ours, once the first of each is finished."""
    folder = mlflow.get_experiment_by_name("bench/small")
    records = mlflow.search_runs([folder.experiment_id]) if folder else []
    copies = {id: [run for run in records if run.data.tags.get("bench.run_id") == id] for id in run_ids}
    return copies if all(runs and runs[0].info.status == "FINISHED" for runs in copies.values()) else None


def test_it_is_published_and_believed_and_a_run_comes_again(
    service_url: str, service_folder: Path, experiment_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a candidate that diverged; the run that is trained again here ends at the same loss to the bit."""
    _publish(service_url, service_folder, experiment_id, tmp_path / "bundle", monkeypatch)
    verified = _verify(tmp_path / "bundle")
    assert (verified["verified"], verified["runs"], verified["results"]) == (True, 6, 6)
    runs = json.loads((tmp_path / "bundle" / "document.json").read_text())["runs"]
    stored = next(run for run in runs if run["candidate"] != "hot")
    command = ["run", "-", "--json", "--out", str(tmp_path / "again")]
    printed = CliRunner().invoke(main, command, input=json.dumps(stored["spec"]), catch_exceptions=False)
    assert json.loads(printed.stdout)["final_val_loss"] == stored["result"]["final_val_loss"]


def _publish(url: str, data: Path, id: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAPM_BENCH_URL", url)
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(data))
    printed = CliRunner().invoke(main, ["publish", id, "-o", str(folder)], catch_exceptions=False)
    assert printed.exit_code == 0, printed.output


def _verify(folder: Path) -> Any:
    printed = CliRunner().invoke(main, ["verify", str(folder), "--json"], catch_exceptions=False)
    assert printed.exit_code == 0, printed.output
    return json.loads(printed.stdout)


def test_a_cancelled_experiment_ends_soon_and_keeps_what_it_has(
    client: Client, service_url: str, service_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting runs are cancelled at once, training ones at their next heartbeat; what is left is published, too."""
    experiment = client.submit(small_comparison(name="long", steps=100_000)).experiment
    until(lambda: any(run.step > 3 for run in client.runs(experiment_id=experiment.id)), "a run trains")
    client.cancel_experiment(experiment.id)
    for _ in client.watch(experiment.id, pause_seconds=0.3):
        pass
    runs = client.runs(experiment_id=experiment.id)
    assert {run.status for run in runs} == {RunStatus.CANCELLED}
    assert any(client.points(run.id) for run in runs)
    _publish(service_url, service_folder, experiment.id, tmp_path / "bundle", monkeypatch)
    assert _verify(tmp_path / "bundle")["results"] == 0
