"""Two whole services on one PostgreSQL: one dispatcher leads; kill -9 of it, and the other one goes on with its runs.

The same on a Ray cluster that was there before: a training outlives its dispatcher, and the next one adopts it.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from orchestrator.jobs import RunAction, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import ExperimentRecord
from orchestrator.services.composition import Services
from orchestrator.store.database import Database
from tests.chaos.processes import cluster_address, dispatcher_of, family, raylet_of, running_service
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, postgresql_server, require_postgresql
from tests.factories.waiting import until
from tests.integration.small_comparison import small_comparison

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(2_400)]

ENDLESS_STEPS = 10_000_000
"""The steps that no machine trains within the bounds of a test."""


@dataclass
class Running:
    """An `adapm-bench up`, or one of its dispatchers, as processes."""

    process: psutil.Process
    folder: Path

    def log(self) -> str:
        return (self.folder / "logs" / "dispatcher.log").read_text()

    def kill(self) -> None:
        """kill -9 of the supervisor and everything below it but detached Ray actors, which are not below it."""
        for member in family(self.process):
            with contextlib.suppress(psutil.Error):
                member.kill()


@contextlib.contextmanager
def service(folder: Path, url: str, *words: str) -> Iterator[Running]:
    """A service of its own data folder on a shared database; killed at the end if it still lives."""
    with running_service(folder, *words, slots=1, environment={"ADAPM_BENCH_DATABASE_URL": url}) as supervisor:
        yield Running(supervisor, folder)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_server(require_postgresql()) as running:
        yield running


@pytest.fixture
def served(server: PostgresqlServer, tmp_path: Path) -> Iterator[tuple[str, Services]]:
    """A fresh database: its URL, and the services on it."""
    url = server.url(server.create_database())
    database = Database(url)
    database.migrate()
    yield url, make_services(database, tmp_path)
    database.close()


def test_the_standby_goes_on_when_the_leader_is_killed(tmp_path: Path, served: tuple[str, Services]) -> None:
    """Nothing is ended by the standby's start, and each run has one result; only what was under way begins again."""
    url, services = served
    with service(tmp_path / "first", url) as first:
        until(lambda: "leading" in first.log(), "the first one leads")
        first_experiment = services.experiments.submit(runs_of("before", seeds=(1, 2))).experiment
        until(lambda: running(services) == 1, "a run trains")
        with service(tmp_path / "second", url) as second:
            until(lambda: "dispatching" in second.log(), "the second one waits")
            assert "leading" not in second.log()
            until(lambda: services.experiments.get(first_experiment.id).counts.done(), "the first runs have ended", 900)
            assert outcomes(services, first_experiment) == ["succeeded", "succeeded"], "the standby has ended nothing"
            experiment = services.experiments.submit(runs_of("failover", seeds=(3, 4))).experiment
            until(lambda: running(services) == 1, "a run has just begun")
            first.kill()
            until(lambda: "leading" in second.log(), "the second one leads")
            until(lambda: services.experiments.get(experiment.id).counts.done(), "every run has ended", 900)
    runs = services.runs.page(experiment_id=experiment.id)
    assert [run.status for run in runs] == [RunStatus.SUCCEEDED] * 2
    assert outcomes(services, experiment) == ["interrupted", "succeeded", "succeeded"], "one run was under way"


def test_a_run_on_a_cluster_outlives_its_dispatcher(
    tmp_path: Path, served: tuple[str, Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of the dispatcher: its successor adopts the training, which goes on in its first attempt.

    It has more steps than any machine takes meanwhile, so that it has not ended before it is adopted.
    """
    url, services = served
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "ray_token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    (tmp_path / "ray_token").write_text(secrets.token_hex(32))
    with ray_cluster(tmp_path) as address, service(tmp_path / "api", url, "--ray-address", address) as first:
        until(lambda: "leading" in first.log(), "the first one leads")
        experiment = services.experiments.submit(runs_of("adopted", seeds=(1,), steps=ENDLESS_STEPS)).experiment
        until(lambda: running(services) == 1, "a run trains")
        dispatcher = dispatcher_of(first.process)
        assert dispatcher is not None
        dispatcher.kill()
        until(lambda: first.log().count("leading") == 2, "its successor leads")
        assert "adopted=1" in first.log()
        (adopted,) = services.runs.page(experiment_id=experiment.id)
        steps = services.runs.get(adopted.id).step
        until(lambda: services.runs.get(adopted.id).step > steps, "the adopted run goes on")
        services.runs.apply(adopted.id, RunAction.CANCEL)
        until(lambda: services.experiments.get(experiment.id).counts.done(), "the adopted run has obeyed")
        next_experiment = services.experiments.submit(runs_of("after", seeds=(1,), steps=6)).experiment
        until(lambda: services.experiments.get(next_experiment.id).counts.done(), "the next run has ended", 900)
    assert outcomes(services, experiment) == ["stopped"], "one attempt, from before the kill to its end"
    assert outcomes(services, next_experiment) == ["succeeded"]


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """`ray start --head` with one CPU, on loopback; its address."""
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    ray = [str(Path(sys.executable).with_name("ray"))]
    start = ["start", "--head", "--block", "--port=0", "--node-ip-address=127.0.0.1", "--num-cpus=1"]
    flags = ["--include-dashboard=false", "--object-store-memory=100000000", "--disable-usage-stats"]
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as closed,
        (folder / "ray.log").open("ab") as log,
    ):
        flags.append(f"--temp-dir={closed}/r")
        head = subprocess.Popen([*ray, *start, *flags], stdout=log, stderr=log, env=environment)
        try:
            until(lambda: b"Ray runtime started" in (folder / "ray.log").read_bytes(), "Ray has started", or_ended=head)
            yield cluster_address(until(lambda: raylet_of(psutil.Process(head.pid)), "its raylet lives"))
        finally:
            family = psutil.Process(head.pid).children(recursive=True)
            head.send_signal(signal.SIGTERM)
            head.wait(60)
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.kill()


def runs_of(name: str, seeds: tuple[int, ...], steps: int = 60) -> ComparisonSpec:
    """Return a comparison with one run of the first candidate for each seed."""
    return small_comparison(name=name, steps=steps, seeds=seeds, optimizers=("adamw",))


def running(services: Services) -> int:
    return len(services.runs.page(status=RunStatus.RUNNING))


def outcomes(services: Services, experiment: ExperimentRecord) -> list[str | None]:
    """Return the outcomes of the attempts at an experiment's runs, sorted."""
    ended = [
        attempt.outcome
        for run in services.runs.page(experiment_id=experiment.id)
        for attempt in services.runs.attempts(run.id)
    ]
    return sorted(ended, key=str)
