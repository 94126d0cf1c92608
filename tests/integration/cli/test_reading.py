"""The verbs that read, export and look after things, against the real service and its files."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from api.client.client import Client
from orchestrator.jobs import Lease
from tests.factories.external_runs import batch as external_batch
from tests.factories.external_runs import header
from tests.factories.stores import batch, claim, comparison_spec
from tests.integration.api_service import Service, serving
from worker.remote.folder import RemoteFolder
from worker.reporting.log import log_path

Cli = Callable[..., Result]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def lease(service: Service) -> Lease:
    service.experiments.submit(comparison_spec())
    (lease,) = claim(service.queue, cpus=1, limit=1)
    service.attempts.hello(lease.run_id, 1, lease.token)
    service.attempts.append_points(lease.run_id, 1, lease.token, batch(0, range(5)))
    return lease


def test_an_export_makes_a_file_for_each_table(cli: Cli, lease: Lease, tmp_path: Path) -> None:
    experiment = lease.run_id.rpartition("-")[0]
    output = cli("export", experiment, "--out", tmp_path / "out").stdout
    for table, rows in (("results", 2), ("series", 5)):
        path = tmp_path / "out" / f"{experiment}-{table}.parquet"
        assert f"{path}  {path.stat().st_size:,} bytes" in output
        assert pyarrow.parquet.read_metadata(path).num_rows == rows
    refused = cli("export", "nothing", "--out", tmp_path / "out")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_runs_of_all_experiments_are_listed_filtered_and_written_as_csv(
    cli: Cli, lease: Lease, service: Service
) -> None:
    lines_batch = external_batch({0: 5.0, 9: 2.5}, run=header("=muon", lr=0.5, config={"width": 64}))
    service.external_runs.append("mine", lines_batch)
    listed = cli("runs", "--where", "lr<0.4 or origin=external", "--columns", "candidate,lr,config.width", "--sort=-lr")
    assert listed.exit_code == 0 and listed.stdout.splitlines()[2].split() == ["mine", "=muon", "0.5", "64"]
    assert len(listed.stdout.splitlines()) == 2 + 1 + len(service.runs.page())
    assert "--limit" in cli("runs", "--limit", 1).stdout
    file = cli("runs", "--where", "config.width=64", "--columns", "candidate,val_loss", "--csv").stdout
    assert file.startswith("run,is_external,experiment_id,candidate,val_loss")
    assert file.splitlines()[1].startswith("mine,true,") and file.splitlines()[1].endswith(",'=muon,2.5")
    (row,) = json.loads(cli("runs", "--where", "id=mine", "--columns", "config.width,reason", "--json").stdout)
    assert row["values"] == {"config.width": 64.0, "reason": None} and row["is_external"] is True
    faulty = cli("runs", "--where", "lr<oops")
    assert faulty.exit_code == 2 and "position 4" in faulty.stderr
    assert "'secret'" in cli("runs", "--columns", "secret").stderr
    assert cli("runs", "--csv", "--json").exit_code == 2
    ids: list[str] = []
    query = {"limit": "1", "columns": "id", "after": ""}
    while len(ids) < 10:
        page = httpx2.get(f"{service.url}/v1/runs/table", params=query, verify=False).json()
        ids += [item["values"]["id"] for item in page["items"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert sorted(ids) == sorted(["mine", *(run.id for run in service.runs.page())]), "each run once"
    answer = httpx2.get(f"{service.url}/v1/runs/table", params={"sort": "lrr"})
    assert answer.status_code == 422 and "lr?" in answer.json()["detail"]


def test_logged_experiments_stand_in_the_list_and_have_labels(cli: Cli, lease: Lease, service: Service) -> None:
    service.external_runs.append("mine", external_batch({0: 5.0}))
    added = cli("edit", "a study", "--label", "paper", "--label", "lion")
    assert added.stdout.endswith(": lion, paper\n")
    assert cli("edit", "a study", "--unlabel", "lion").stdout.endswith(": paper\n")
    assert cli("edit", "no study", "--label", "paper").exit_code == 1
    assert cli("edit", "a study", "--note", "none here").exit_code == 2
    assert [experiment["name"] for experiment in json.loads(cli("ls", "--source", "logged", "--json").stdout)] == [
        "a study"
    ]
    assert "a study" in cli("ls", "--label", "paper").stdout
    assert "a study" not in cli("ls", "--source", "bench").stdout
    assert json.loads(cli("ls", "--source", "imported", "--json").stdout) == []
    shown = json.loads(cli("show", "a study", "--json").stdout)
    assert json.loads(cli("show", shown["experiment"]["id"][:6], "--json").stdout) == shown, "the beginning of its id"
    assert shown["experiment"]["origin"] == "external" and [run["id"] for run in shown["runs"]] == ["mine"]
    assert json.loads(cli("show", "mine", "--json").stdout)["experiment_id"] == shown["experiment"]["id"]
    assert "a study" in cli("show", "mine").stdout
    assert cli("cancel", "a study").exit_code == cli("cancel", "mine").exit_code == 2, "they are never queued"
    assert cli("compare", "a study", "--cell", "x").exit_code == 2
    assert cli("compare", service.experiments.page()[0].id, "--metric", "loss").exit_code == 2
    with Client(service.url) as client:
        assert [experiment.name for experiment in client.external_experiments(labels=["paper"])] == ["a study"]
        assert client.external_experiments(labels=["paper", "lion"]) == ()
        service.external_runs.append("other", external_batch({0: 5.0}, run=header(experiment="newer")))
        assert [experiment.name for experiment in client.external_experiments(limit=1)] == ["newer"]
        client.delete_external_experiment("newer")
    assert cli("delete", "a study").exit_code == 2, "nobody is there to confirm it"
    assert cli("delete", "a study", "--yes").stdout.endswith("is deleted for good\n")
    assert service.external_runs.experiments() == ()


def test_logs_show_the_end_of_what_the_newest_attempt_printed(cli: Cli, lease: Lease, tmp_path: Path) -> None:
    path = log_path(tmp_path / "runs" / lease.run_id, 1)
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"line {number}\n" for number in range(5_000)) + "\x1b[31mRuntimeError: boom\n")
    result = cli("logs", lease.run_id, "--tail", 2)
    assert result.stdout.splitlines() == ["line 4999", "?[31mRuntimeError: boom"]
    log = json.loads(cli("logs", lease.run_id, "--tail", 1, "--json").stdout)
    assert log == {"run": lease.run_id, "attempt": 1, "lines": ["\x1b[31mRuntimeError: boom"]}
    assert cli("logs", lease.run_id, "--search", "LINE 300", "--tail", 2).stdout.splitlines() == [
        "line 3008",
        "line 3009",
    ]
    with path.open("a") as file:
        file.write("2026-11-24 10:00:00,000 ERROR worker.run: no memory\n  in step 3\n")
    assert cli("logs", lease.run_id, "--level", "error", "--search", "step").stdout == "  in step 3\n"
    assert cli("logs", lease.run_id, "--level", "loud").exit_code == 2
    assert cli("logs", lease.run_id, "--attempt", 2).exit_code == 1
    assert cli("logs", lease.run_id.replace("0000", "0001")).exit_code == 1


def test_the_log_of_a_machine_that_is_lost_is_read_from_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the verb and on the run's page; nothing of it is in the service's own folder."""
    url = f"file://{tmp_path}/remote"
    with serving(tmp_path, checkpoint_url=url) as service:
        service.experiments.submit(comparison_spec())
        (lease,) = claim(service.queue, cpus=1, limit=1)
        assert service.attempts.hello(lease.run_id, 1, lease.token).checkpoint_url == f"{url}/{lease.run_id}"
        monkeypatch.setenv("ADAPM_BENCH_URL", service.url)
        missing = CliRunner().invoke(main, ["logs", lease.run_id])
        assert missing.exit_code == 1 and "file://" in missing.stderr
        RemoteFolder(url).write(f"{lease.run_id}/logs/attempt-1.log", b"first words\nlast words\n")
        result = CliRunner().invoke(main, ["logs", lease.run_id, "--tail", "1"])
        assert result.stdout == "last words\n"
        assert "last words" in httpx2.get(f"{service.url}/runs/{lease.run_id}", timeout=60).text
    assert not (tmp_path / "runs").exists()
