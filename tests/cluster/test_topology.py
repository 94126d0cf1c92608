"""docker-compose.yml's topology with the very same commands, as processes of this machine: PostgreSQL, MLflow, a Ray
head, two Ray nodes, two apis, two dispatchers; each of them is killed with -9 while a run trains.

`make cluster-test`; not part of `make test`, since it needs minutes.
"""

import contextlib
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from api.client.client import Client, ClientError
from orchestrator.jobs import RunStatus
from tests.architecture.tree import REPOSITORY
from tests.chaos.undisturbed import course_of, undisturbed_courses
from tests.factories.stores import PostgresqlProcess, postgresql_process, require_postgresql
from tests.factories.waiting import until
from tests.integration.small_comparison import small_comparison

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(1800)]

SERVICES: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
PROGRAMS = Path(sys.executable).parent


@dataclass
class Container:
    """A process that is started again when it ends, as `restart: unless-stopped` does."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    starts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, with a session of its own, so that all of it can be killed; what the last one left ends with it."""
        if self.process is not None:
            self.kill()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )
        self.starts += 1

    def kill(self, number: int = signal.SIGKILL) -> None:
        """The signal to all of its processes."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Machine:
    """The containers, and a thread that starts again what ended."""

    def __init__(self, folder: Path, places: dict[str, str], environment: dict[str, str]) -> None:
        self.folder, self.places, self.environment = folder, places, environment
        self.containers: dict[str, Container] = {}
        self._leaving = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def up(self, name: str, service: str, **places: str) -> Container:
        """Start a container with the command of that service, at the places of this machine."""
        command = [str(PROGRAMS / word) if word in ("ray", "adapm-bench", "mlflow") else word
                   for word in shlex.split(self._placed(service, places))]  # fmt: skip
        environment = dict(self.environment)
        if "adapm_bench_database_url" not in SERVICES[service]["secrets"]:  # as there, it knows no database
            del environment["ADAPM_BENCH_DATABASE_URL"]
        container = Container(name, command, environment, self.folder / f"{name}.log")
        container.start()
        self.containers[name] = container
        return container

    def down(self) -> None:
        """End everything, in the reverse order."""
        self._leaving.set()
        self._watcher.join()
        for number, patience in ((signal.SIGTERM, 60.0), (signal.SIGKILL, 30.0)):
            for container in reversed(self.containers.values()):
                container.kill(number)
            deadline = time.monotonic() + patience
            for container in self.containers.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    assert container.process is not None
                    container.process.wait(max(0.1, deadline - time.monotonic()))

    def _placed(self, service: str, places: dict[str, str]) -> str:
        """A service's command, with this machine's places for those of the networks."""
        command = SERVICES[service]["command"]
        text = command if isinstance(command, str) else command[-1]
        text = " ".join(line for line in text.replace("\\\n", " ").splitlines() if "export " not in line)
        text = text.replace("exec ", "").rpartition("&& ")[2]  # this machine has a node of Ray's already
        for compose, local in {**self.places, **places}.items():
            text = text.replace(compose, local)
        return re.sub(r"\$\$", "$", text)

    def _watch(self) -> None:
        while not self._leaving.wait(0.5):
            for container in list(self.containers.values()):
                if container.process is not None and container.process.poll() is not None:
                    container.start()


@pytest.fixture
def postgresql() -> Iterator[PostgresqlProcess]:
    """A private PostgreSQL server with an empty database, durable as the one in its container."""
    with postgresql_process(require_postgresql()) as server:
        yield server


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """A short path for Ray's Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def test_a_comparison_survives_the_loss_of_each_part(
    tmp_path: Path, postgresql: PostgresqlProcess, ray_folder: str
) -> None:
    begun = time.monotonic()
    # Ray's nodes do not join on loopback: it replaces 127.0.0.1 by the machine's own address.
    address = ray.util.get_node_ip_address()
    (tmp_path / "ray_token").write_text(secrets.token_hex(32))
    ports = {name: free_port() for name in ("ray", "mlflow", "api 1", "api 2")}
    head, mlflow = f"{address}:{ports['ray']}", f"http://127.0.0.1:{ports['mlflow']}"
    environment = os.environ | {
        "ADAPM_BENCH_DATABASE_URL": postgresql.url,
        "ADAPM_BENCH_DATA_FOLDER": str(tmp_path / "data"),
        "ADAPM_BENCH_MLFLOW_URI": mlflow,
        "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{tmp_path}/mlflow.sqlite3",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "ray_token"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    services = [str(PROGRAMS / "adapm-bench")]
    assert shlex.split(SERVICES["migrate"]["command"]) == ["adapm-bench", "db", "upgrade"]
    subprocess.run([*services, "db", "upgrade"], env=environment, check=True, cwd=tmp_path)
    process = subprocess.run(
        [*services, "keys", "create", "--label", "the test", "--scope", "admin"],
        env=environment,
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    places = {
        "0.0.0.0": "127.0.0.1",
        "ray-head:6379": head,
        "--port=6379": f"--port={ports['ray']} --node-ip-address={address}",
        "$$(mktemp -d)": ray_folder,
        "--port 5000": f"--port {ports['mlflow']}",
        "mlflow:*": "127.0.0.1:*",
        "/artifacts": str(tmp_path / "artifacts"),
    }
    machine = Machine(tmp_path, places, environment)
    try:
        machine.up("ray head", "ray-head")
        until(lambda: b"Ray runtime started" in (tmp_path / "ray head.log").read_bytes(), "Ray has started", 1200)
        machine.up("mlflow", "mlflow")
        for node in ("1", "2"):
            options = {"--block": f"--block --num-cpus=1 --node-ip-address={address}"}
            machine.up(f"ray node {node}", "worker-cpu", **options)
        for number in ("1", "2"):
            port = str(ports[f"api {number}"])
            machine.up(f"api {number}", "api", **{"8321": port})
            machine.up(f"dispatcher {number}", "dispatcher", **{"api:8321": f"127.0.0.1:{port}"})
        summary = go_through(machine, postgresql, f"http://127.0.0.1:{ports['api 2']}", process.stdout.strip(), mlflow)
        print(f"{summary}, in {time.monotonic() - begun:.0f} s")
    except BaseException:
        for log in sorted(tmp_path.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        machine.down()


VICTIMS = (
    "api 1", "dispatcher 1", "ray node 1", "postgresql", "mlflow", "ray head", "dispatcher 2", "api 2", "ray node 2"
)  # fmt: skip


def go_through(machine: Machine, postgresql: PostgresqlProcess, url: str, key: str, mlflow: str) -> str:
    """Kill each of them while a run trains, and look at what came of it."""
    experiments: list[str] = []
    with Client(url, key=key, retries=20) as client:
        until(lambda: answers(client), "the api answers")
        for victim in VICTIMS:
            await_training(client, victim, experiments)
            print(f"a run trains: kill -9 {victim}", flush=True)
            if victim == "postgresql":
                postgresql.kill()
                postgresql.start()
            else:
                machine.containers[victim].kill()
        until(lambda: have_ended(client, experiments), "every run has ended", 1200)
        runs = [run for experiment in experiments for run in client.runs(experiment_id=experiment)]
        assert [run.status for run in runs] == [RunStatus.SUCCEEDED] * len(experiments)
        courses = {run.id: course_of(client.points(run.id), run.result) for run in runs if run.result}
        until(lambda: copies(mlflow, machine.folder) == len(runs), "MLflow has every run")
        attempts = sum(run.attempt for run in runs)
    assert all(container.starts >= 2 for name, container in machine.containers.items() if name in VICTIMS)
    expected = undisturbed_courses(runs, machine.folder / "alone", machine.folder / "data" / "datasets")
    assert courses == expected
    return f"{len(runs)} runs in {attempts} attempts, {len(VICTIMS)} kills, every point as undisturbed"


def await_training(client: Client, victim: str, experiments: list[str]) -> None:
    """Return while the run of a new experiment trains; another is submitted where one had ended before it was seen."""
    while True:
        name = f"{victim} {len(experiments)}"
        spec = small_comparison(name=name, steps=200, seeds=(1,), optimizers=("adamw",))
        # The key makes it the same experiment though the api dies between having it and saying so.
        experiments.append(client.submit(spec, key=name.replace(" ", "-")).experiment.id)
        until(lambda: trains(client, experiments[-1]) or have_ended(client, experiments[-1:]), f"a run for {victim}")
        if trains(client, experiments[-1]):
            return


def trains(client: Client, experiment_id: str) -> bool:
    """Whether the run of that experiment trains now; False while the service is away."""
    try:
        return [run.status for run in client.runs(experiment_id=experiment_id)] == [RunStatus.RUNNING]
    except ClientError:
        return False


def have_ended(client: Client, experiments: Sequence[str]) -> bool:
    """Whether all of their runs have; False while the service is away."""
    try:
        return all(client.experiment(experiment_id).counts.done() for experiment_id in experiments)
    except ClientError:
        return False


def answers(client: Client) -> bool:
    """Whether the api answers."""
    try:
        client.health()
    except ClientError:
        return False
    return True


def copies(mlflow: str, folder: Path) -> int:
    """Return the number of finished runs with a parent in MLflow."""
    question = (
        "import mlflow; c = mlflow.MlflowClient(); ids = [e.experiment_id for e in c.search_experiments()]; "
        "found = c.search_runs(ids, max_results=1000); "
        "print(sum('mlflow.parentRunId' in r.data.tags and r.info.status == 'FINISHED' for r in found))"
    )
    environment = os.environ | {"MLFLOW_TRACKING_URI": mlflow}
    process = subprocess.run(
        [sys.executable, "-c", question], env=environment, capture_output=True, text=True, cwd=folder, check=False
    )
    return int(process.stdout.strip() or -1)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
