"""Processes under load: our api, an idle dispatcher, MLflow's server, on free loopback ports, and a quick client."""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from api.processes.address import answers, listen
from benchmarks.result_file import processor
from orchestrator.jobs import LeasePolicy
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from worker.cpus import usable_cpus

START_SECONDS = 180.0

DISPATCHER_WITHOUT_RAY = """
import sys, threading
from pathlib import Path
from orchestrator.dispatch.dispatcher import Dispatcher
from orchestrator.jobs import LeasePolicy
from orchestrator.services.composition import compose_services
from orchestrator.settings import Settings
from orchestrator.store.database import Database
from orchestrator.store.leadership import LeaderLoop, Leadership
from orchestrator.store.queue.queue import Queue
from orchestrator.export.exporter import Exporter

class Nothing:
    def nodes(self): return ()
    def collect_ended(self): return ()
    def adopt(self, live): return ()

database, folder = Database(sys.argv[1]), Path(sys.argv[2])
services = compose_services(database, Settings(data_folder=folder))
Exporter(services.experiments, services.runs, database, f"sqlite:///{folder}/mlflow.sqlite3", folder, holder="idle")
loop = LeaderLoop(Dispatcher(Queue(database, LeasePolicy()), Nothing(), Leadership(database, "idle")))
for _ in range(8):
    loop.tick()
print("idle", flush=True)
sys.stdin.read()
"""
"""All of the dispatcher process but Ray, which is not ours, and MLflow, which is imported at the first export."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The running api process and its database."""

    host: str
    port: int
    process: psutil.Process
    database: Database
    queue: Queue
    folder: Path
    ready_seconds: float
    """The time from the start of the process to its first answer."""
    ready_cpu_seconds: float

    def cpu_seconds(self) -> float:
        """Return the CPU time of the api process so far, which says more than the clock on a busy machine."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def connection(self) -> http.client.HTTPConnection:
        """A connection of its own; the standard library's client costs a tenth of others' time."""
        return http.client.HTTPConnection(self.host, self.port, timeout=60)


def call(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None, token: str | None = None
) -> bytes:
    """Send a request on a connection that stays open; raises if the answer is not a success."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    content = response.read()
    if response.status >= 400:
        raise RuntimeError(f"{method} {path} answered {response.status}: {content[:500]!r}")
    return content


def timed(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@contextmanager
def running_service(folder: Path, database_url: str | None = None, verb: str = "api") -> Iterator[Service]:
    """An api process, on a fresh SQLite database unless another one is named; all of the service for the verb `up`."""
    port = _free_port()
    database_url = database_url or f"sqlite:///{folder / 'bench.sqlite3'}"
    os.environ["ADAPM_BENCH_DATABASE_URL"] = database_url  # of the process below
    database = Database(database_url)
    database.migrate()
    command = [sys.executable, "-m", "api.cli", verb, "--data", str(folder), "--port", str(port)]
    began = time.monotonic()
    with _process(command, f"http://127.0.0.1:{port}", "/healthz", folder / "api.log") as process:
        times = process.cpu_times()
        yield Service(
            host="127.0.0.1",
            port=port,
            process=process,
            database=database,
            queue=Queue(database, LeasePolicy()),
            folder=folder,
            ready_seconds=time.monotonic() - began,
            ready_cpu_seconds=float(times.user + times.system),
        )
    database.close()


@contextmanager
def mlflow_server(folder: Path) -> Iterator[tuple[str, int]]:
    """MLflow's server with one worker over a fresh SQLite store."""
    port = _free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder / 'peer.sqlite3'}"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--default-artifact-root", str(folder / "peer")]
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with _process(command, f"http://127.0.0.1:{port}", "/health", folder / "mlflow.log"):
        yield "127.0.0.1", port


@contextmanager
def _process(command: list[str], url: str, path: str, log: Path) -> Iterator[psutil.Process]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not answers(url, path=path):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[2]} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.02)
            yield psutil.Process(process.pid)
        finally:
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.terminate()
            for child in children:
                if child.is_running():
                    child.terminate()


def _free_port() -> int:
    listener = listen("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    listener.close()
    return port


def machine() -> str:
    return f"{processor()}, {usable_cpus()} cores"
