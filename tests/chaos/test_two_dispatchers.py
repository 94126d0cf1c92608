"""Two whole services on one PostgreSQL: one dispatcher leads; kill -9 of it, and the other one goes on with its runs.

The same on a Ray cluster that was there before: a training outlives its dispatcher, and the next one adopts it.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from api.data_folder import read_note
from orchestrator.experiments import ComparisonSpec
from orchestrator.jobs import LeasePolicy, RunStatus
from orchestrator.service import Bench
from orchestrator.store.database import Database
from orchestrator.store.queue import Queue
from tests.integration.small_comparison import small_comparison
from tests.stores import PostgresqlServer, postgresql_programs, postgresql_server

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(2_400)]


@dataclass
class Running:
    """One `adapm-bench up`, or one of its dispatchers, as processes."""

    process: psutil.Process
    folder: Path

    def log(self) -> str:
        return (self.folder / "logs" / "dispatcher.log").read_text()

    def kill(self) -> None:
        """kill -9 of the supervisor and everything below it but detached Ray actors, which are not below it."""
        family = [self.process, *self.process.children(recursive=True)]
        for each in family:
            with contextlib.suppress(psutil.Error):
                each.kill()


@contextlib.contextmanager
def service(folder: Path, url: str, *words: str) -> Iterator[Running]:
    """A service of its own data folder on a shared database; killed at the end if it still lives."""
    command = [sys.executable, "-m", "api.cli", "up", "--data", str(folder), "--port", "0", "--slots", "1", *words]
    environment = os.environ | {"ADAPM_BENCH_DATABASE_URL": url}
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            until(lambda: read_note(folder) is not None, "the service answers")
            yield Running(psutil.Process(process.pid), folder)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    programs = postgresql_programs()
    if programs is None:
        pytest.skip("PostgreSQL's server programs (initdb, postgres) are not installed")
    with postgresql_server(programs) as running:
        yield running


@pytest.fixture
def bench(server: PostgresqlServer, tmp_path: Path) -> Iterator[tuple[str, Bench]]:
    """A fresh database: its URL, and the service's verbs on it."""
    url = server.url(server.create_database())
    database = Database(url)
    database.migrate()
    yield url, Bench(database, LeasePolicy(), tmp_path / "runs", tmp_path / "datasets")
    database.close()


def test_the_standby_goes_on_when_the_leader_is_killed(tmp_path: Path, bench: tuple[str, Bench]) -> None:
    """Nothing is ended by the standby's start, and each run has one result; only what was under way begins again."""
    url, verbs = bench
    with service(tmp_path / "first", url) as first:
        until(lambda: "leading" in first.log(), "the first one leads")
        experiment = verbs.submit(runs_of("failover", seeds=(1, 2))).experiment
        until(lambda: running(verbs) == 1, "a run trains")
        with service(tmp_path / "second", url) as second:
            until(lambda: "dispatching" in second.log(), "the second one waits")
            assert "leading" not in second.log()
            assert attempts(verbs) == [1, 0], "the standby has ended nothing"
            first.kill()
            until(lambda: "leading" in second.log(), "the second one leads")
            until(lambda: verbs.experiment(experiment.id).counts.done(), "every run has ended", 900)
    runs = verbs.runs(experiment_id=experiment.id)
    assert [run.status for run in runs] == [RunStatus.SUCCEEDED] * 2
    assert sum(run.attempt for run in runs) == 3, "one run was under way"
    outcomes = [each.outcome for run in runs for each in verbs.attempts(run.id)]
    assert sorted(filter(None, outcomes)) == ["interrupted", "succeeded", "succeeded"]


def test_a_run_on_a_cluster_outlives_its_dispatcher(
    tmp_path: Path, bench: tuple[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of the dispatcher: its successor adopts the training, in a warm actor, and its first attempt succeeds."""
    url, verbs = bench
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "ray_token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("ADAPM_BENCH_WARM_ACTORS", "1")
    (tmp_path / "ray_token").write_text(secrets.token_hex(32))
    with ray_cluster(tmp_path) as address, service(tmp_path / "api", url, "--ray-address", address) as first:
        until(lambda: "leading" in first.log(), "the first one leads")
        before = verbs.submit(runs_of("before", seeds=(1,), steps=5)).experiment
        until(lambda: verbs.experiment(before.id).counts.done(), "earlier runs have ended", 900)
        until(lambda: first.log().rstrip().endswith("gpus=0"), "a warm actor starts")
        experiment = verbs.submit(runs_of("adopted", seeds=(1,))).experiment
        until(lambda: running(verbs) == 1, "a run trains")
        for child in first.process.children():
            if "dispatcher" in child.cmdline():
                child.kill()
        until(lambda: first.log().count("leading") == 2, "its successor leads")
        assert "adopted=1" in first.log()
        assert actors_of(url) == ["warm"]
        until(lambda: verbs.experiment(experiment.id).counts.done(), "every run has ended", 900)
    (run,) = verbs.runs(experiment_id=experiment.id)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)


def actors_of(url: str) -> list[str]:
    """The first words of the names of actors that carry out attempts."""
    database = Database(url)
    names = [each.actor or "cold" for each in Queue(database, LeasePolicy()).live()]
    database.close()
    return [name.partition("-")[0] for name in names]


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """`ray start --head` with one CPU, on loopback; its address."""
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray = [str(Path(sys.executable).with_name("ray"))]
    start = ["start", "--head", "--block", f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=1"]
    flags = ["--include-dashboard=false", "--object-store-memory=100000000", "--disable-usage-stats"]
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as closed,
        (folder / "ray.log").open("ab") as log,
    ):
        flags.append(f"--temp-dir={closed}/r")
        head = subprocess.Popen([*ray, *start, *flags], stdout=log, stderr=log, env=environment)
        try:
            until(lambda: b"Ray runtime started" in (folder / "ray.log").read_bytes(), "Ray has started")
            yield f"127.0.0.1:{port}"
        finally:
            family = psutil.Process(head.pid).children(recursive=True)
            head.send_signal(signal.SIGTERM)
            head.wait(60)
            for each in family:
                with contextlib.suppress(psutil.Error):
                    each.kill()


def runs_of(name: str, seeds: tuple[int, ...], steps: int = 150) -> ComparisonSpec:
    """One for each seed, long enough to be killed in between, however fast the machine is."""
    spec = small_comparison(name=name, steps=steps, seeds=seeds)
    return spec.model_copy(update={"candidates": spec.candidates[:1]})


def running(bench: Bench) -> int:
    return len(bench.runs(status=RunStatus.RUNNING))


def attempts(bench: Bench) -> list[int]:
    return sorted((run.attempt for run in bench.runs()), reverse=True)


def until(condition: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(0.1)
