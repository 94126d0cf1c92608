"""The copy in MLflow: complete, and the same wherever its making was cut, against a real MLflow on SQLite."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from orchestrator.export.exporter import ROLE, Exporter
from orchestrator.export.mlflow import MlflowCopy, make_store
from orchestrator.jobs import Lease, LeasePolicy, RunAction, RunStatus
from orchestrator.services.composition import Services
from orchestrator.store.database import Database
from orchestrator.store.leadership import LeaderLoop, Leadership, LostLeadershipError
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import claim, comparison_spec, result, sqlite_database
from worker.records.protocol import CheckpointNotice, Failure, FailureKind, PointsBatch
from worker.records.result import Point

POINTS = tuple(
    Point(
        step=n,
        tokens=n * 1024,
        train_loss=5.0 - n,
        val_loss=4.0 if n == 3 else None,
        step_seconds=0.5,
        gpu_utilization=0.5 if n == 2 else None,
        gpu_memory_bytes=3_000_000 if n == 2 else None,
    )
    for n in range(4)
)


class Killed(BaseException):
    """An exception like a `kill -9` between two calls."""


class Mortal:
    """MLflow's client, behind which the process dies at call number `dies_at`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.dies_at = -1
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self.dies_at:
                raise Killed
            return method(*arguments, **named)

        return call


@pytest.fixture(scope="module")
def mlflow_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return one MLflow store for all tests: making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.sqlite3'}"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as database:
        yield database


def played(database: Database, folder: Path, name: str, *, seeds: tuple[int, ...] = (1, 2)) -> Services:
    """An experiment of two runs: one with a result, one that broke down behind a checkpoint; or of the first alone."""
    policy = LeasePolicy()
    services, queue = make_services(database, folder, policy), Queue(database, policy)
    services.experiments.submit(comparison_spec(name=name, seeds=seeds))
    fine, *other_leases = claim(queue, cpus=2, limit=2)
    for lease in (fine, *other_leases):
        services.attempts.hello(lease.run_id, 1, lease.token)
        services.attempts.append_points(
            lease.run_id, 1, lease.token, PointsBatch.from_points(sequence=0, points=POINTS)
        )
    services.attempts.finish(fine.run_id, 1, fine.token, result())
    for broken in other_leases:
        break_down(services, broken)
    return services


def break_down(services: Services, broken: Lease) -> None:
    notice = CheckpointNotice(step=3, path="/runs/x/step-000000003.pt", size_bytes=7, sha256="ab")
    services.attempts.checkpoint(broken.run_id, 1, broken.token, notice)
    failure = Failure(kind=FailureKind.PROGRAM, message="a bug", device_seconds=1.0)
    services.attempts.finish(broken.run_id, 1, broken.token, failure)


def contents(client: Any, name: str) -> list[dict[str, Any]]:
    """Return MLflow's content of our experiment, without MLflow's own fields."""
    experiment = client.get_experiment_by_name(f"bench/{name}")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"])
    names = {run.info.run_id: run.info.run_name for run in runs}
    copies = []
    for run in runs:
        tags = {key: value for key, value in run.data.tags.items() if key.startswith("bench.")}
        for tag in ("bench.experiment_id", "bench.run_id", "bench.ended_at"):
            tags.pop(tag, None)
        history = {
            key: sorted((point.step, point.value) for point in client.get_metric_history(run.info.run_id, key))
            for key in run.data.metrics
        }
        files = sorted(file.path for file in client.list_artifacts(run.info.run_id))
        copies.append(
            {
                "name": run.info.run_name.replace(name, "NAME"),
                "parent": names.get(run.data.tags.get("mlflow.parentRunId", ""), "").replace(name, "NAME"),
                "status": run.info.status,
                "tags": tags,
                "params": run.data.params,
                "metrics": history,
                "files": files,
            }
        )
    return copies


def without_hashes(copy: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An experiment's name is part of its hash, and device-hours are of this machine's clock."""
    for run in copy:
        if not run["parent"]:
            run["tags"].pop("bench.spec_hash")
    return copy


def test_a_copy_is_complete_and_the_same_wherever_its_making_was_cut(
    mlflow_uri: str, database: Database, tmp_path: Path
) -> None:
    """The exporter dies before each of its calls in turn, and starts again from the outbox."""
    outbox = ExportOutbox(database)
    undisturbed: list[dict[str, Any]] | None = None
    dies_at, died = 0, True
    while died:
        services = played(database, tmp_path, f"cut {dies_at}", seeds=(1,))
        copy = copy_of(services, mlflow_uri, tmp_path)
        mortal = Mortal(copy._client)
        copy._client = mortal
        mortal.dies_at = dies_at
        died = dies_at == 0
        while entries := outbox.due():
            try:
                for entry in entries:
                    copy.write(entry)
                    outbox.confirm(entry.id)
            except Killed:
                died = True
        content = without_hashes(contents(mortal._client, f"cut {dies_at}"))
        undisturbed = undisturbed or content
        assert content == undisturbed, f"the copy differs where the exporter died at call {dies_at}"
        dies_at += 1
    assert dies_at > 12
    assert services.monitor.metrics().export_backlog == 0


def copy_of(services: Services, uri: str, folder: Path, **options: Any) -> MlflowCopy:
    return MlflowCopy(services.experiments, services.runs, uri, folder / "artifacts", **options)


def export(services: Services, database: Database, uri: str, folder: Path, holder: str = "the only one") -> None:
    """Start an exporter, and stop it at once: it delivers what is ready."""
    exporter = Exporter(services.experiments, services.runs, database, uri, folder / "artifacts", holder=holder)
    loop = LeaderLoop(exporter, stop_seconds=30.0)
    loop.start()
    loop.close()


def test_a_copy_has_series_result_provenance_and_artifacts(mlflow_uri: str, database: Database, tmp_path: Path) -> None:
    services = played(database, tmp_path, "whole")
    export(services, database, mlflow_uri, tmp_path)
    client = copy_of(services, mlflow_uri, tmp_path)._client
    fine, broken, parent = sorted(
        contents(client, "whole"), key=lambda run: (not run["parent"], run["status"] == "FAILED")
    )
    assert (parent["name"], parent["status"], parent["files"]) == ("NAME", "FINISHED", ["spec.json"])
    assert fine["metrics"]["train_loss"] == [(0, 5.0), (1, 4.0), (2, 3.0), (3, 2.0)]
    assert fine["metrics"]["val_loss"] == [(3, 4.0)]
    assert fine["metrics"]["system/gpu_0_utilization_percentage"] == [(2, 50.0)]
    assert fine["metrics"]["system/gpu_0_memory_usage_megabytes"] == [(2, 3.0)]
    assert fine["metrics"]["final_val_loss"] == [(10, 2.5)]
    assert fine["metrics"]["peak_memory.host_rss_bytes"] == [(10, 500_000_000.0)]
    assert fine["params"]["workload.budget.steps"] == "10"
    assert fine["tags"]["bench.verdict"] == "converged"
    assert fine["files"] == ["result.json", "series.parquet", "spec.json"]
    assert broken["files"] == ["checkpoint.json", "series.parquet", "spec.json"]
    assert broken["tags"]["bench.checkpoint"].startswith("/runs/x/step-000000003.pt (step 3")
    assert broken["tags"]["bench.reason"] == "a bug"
    stored = next((tmp_path / "artifacts").glob("**/series.parquet"))
    assert pyarrow.parquet.read_table(stored).column("step").to_pylist() == [0, 1, 2, 3]
    (spec, *_) = sorted((tmp_path / "artifacts").glob("**/spec.json"))
    assert json.loads(spec.read_text())


def test_while_mlflow_is_away_entries_wait_and_nothing_else_does(database: Database, tmp_path: Path) -> None:
    services = played(database, tmp_path, "away")
    outbox = ExportOutbox(database)
    export(services, database, "http://127.0.0.1:9", tmp_path)
    assert services.monitor.metrics().export_backlog == 3
    assert 1 not in [entry.id for entry in outbox.due()], "a failed entry waits"
    database.clock_offset_seconds += 10
    assert outbox.due()[0].id == 1


def test_of_two_exporters_one_delivers_and_the_other_one_takes_over_when_it_has_left(
    mlflow_uri: str, database: Database, tmp_path: Path
) -> None:
    """A standby dispatcher exports, too: it must not look for runs in MLflow that the leader is about to make."""
    services = played(database, tmp_path, "two")
    leader = Leadership(database, "the leader", role=ROLE)
    assert leader.hold() == 1
    export(services, database, mlflow_uri, tmp_path, holder="a standby")
    assert services.monitor.metrics().export_backlog == 3
    leader.resign()
    export(services, database, mlflow_uri, tmp_path, holder="another standby")
    assert services.monitor.metrics().export_backlog == 0
    assert leader.hold() is not None, "who has delivered all and leaves gives the role back"


def test_an_exporter_that_another_one_replaced_stops_in_the_middle(
    mlflow_uri: str, database: Database, tmp_path: Path
) -> None:
    services = played(database, tmp_path, "replaced", seeds=(1,))

    def lost() -> None:
        raise LostLeadershipError

    copy = copy_of(services, mlflow_uri, tmp_path, before_batch=lost)
    (_, ended) = ExportOutbox(database).due()
    with pytest.raises(LostLeadershipError):
        copy.write(ended)


def test_a_run_that_succeeds_after_a_retry_has_one_value_a_step_and_no_tag_of_its_failure(
    mlflow_uri: str, database: Database, tmp_path: Path
) -> None:
    """The second attempt goes on behind the checkpoint of the first, at another pace; each ending is exported."""
    services = played(database, tmp_path, "retried")
    copy, outbox = copy_of(services, mlflow_uri, tmp_path), ExportOutbox(database)
    deliver(copy, outbox)
    (broken,) = (run for run in services.runs.page() if run.status is RunStatus.FAILED)
    services.runs.apply(broken.id, RunAction.RETRY)
    (lease,) = claim(Queue(database, LeasePolicy()), cpus=1, limit=1)
    services.attempts.hello(lease.run_id, 2, lease.token)
    slower = tuple(
        Point(step=n, tokens=n * 1024, train_loss=6.0 - n, val_loss=None, step_seconds=0.9) for n in (2, 3, 4)
    )
    services.attempts.append_points(lease.run_id, 2, lease.token, PointsBatch.from_points(sequence=0, points=slower))
    services.attempts.finish(lease.run_id, 2, lease.token, result())
    deliver(copy, outbox)
    (retried_run,) = (run for run in contents(copy._client, "retried") if run["tags"].get("bench.attempts") == "2")
    assert retried_run["status"] == "FINISHED"
    assert retried_run["metrics"]["train_loss"] == [(0, 5.0), (1, 4.0), (2, 4.0), (3, 3.0), (4, 2.0)]
    assert retried_run["metrics"]["step_seconds"] == [(0, 0.5), (1, 0.5), (2, 0.9), (3, 0.9), (4, 0.9)]
    assert len(retried_run["metrics"]["device_hours"]) == 1
    assert not {"bench.reason", "bench.checkpoint"} & retried_run["tags"].keys()
    assert retried_run["files"] == ["result.json", "series.parquet", "spec.json"]
    assert len(contents(copy._client, "retried")) == 3, "the parent and two children, none twice"


def deliver(copy: MlflowCopy, outbox: ExportOutbox) -> None:
    for entry in outbox.due():
        copy.write(entry)
        outbox.confirm(entry.id)


def test_a_store_whose_making_was_killed_is_made_anew(
    mlflow_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the kill left lies beside the store's place; a store that is there is not touched."""
    assert mlflow_uri.startswith("sqlite:///")  # its fixture has imported MLflow
    path, leftover = tmp_path / "mlflow.sqlite3", tmp_path / "mlflow.0a1b.unfinished"
    leftover.write_bytes(b"half a database")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            make_store(path)
    assert not path.exists()
    make_store(path)
    with contextlib.closing(sqlite3.connect(path)) as store:
        assert store.execute("select count(*) from experiments").fetchone() == (1,)
    file_stat = path.stat()
    make_store(path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (file_stat.st_ino, file_stat.st_mtime_ns)
    assert not leftover.exists()
    assert not list(tmp_path.glob("*.unfinished"))
