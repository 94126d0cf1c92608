"""What the service can take: ingest, charts, lists, submissions and memory, over HTTP on loopback, MLflow beside it.

    python -m benchmarks.service_load --json benchmarks/results/service-load.json

One api process over SQLite in a temporary folder, about a minute. Clients share the machine's cores with the service,
so every figure is a lower bound. `--without-mlflow` saves its half minute. Server time is the whole request, seen from
the client; `cold` is the first one that reads those points.
"""

import argparse
import http.client
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import psutil

from api.health import answers
from api.supervisor import listen
from orchestrator.experiments import Candidate, ComparisonSpec
from orchestrator.jobs import LeasePolicy
from orchestrator.store.database import Database
from orchestrator.store.queue import Queue
from worker.protocol import PointsBatch
from worker.record import Point
from worker.spec import Budget, Workload

POINTS = 1_000_000
CLIENTS = 16
START_SECONDS = 60.0

DISPATCHER_WITHOUT_RAY = """
import sys, threading
from pathlib import Path
from orchestrator.dispatcher import Capacity, Dispatcher
from orchestrator.jobs import LeasePolicy
from orchestrator.service import Bench
from orchestrator.store.database import Database
from orchestrator.store.queue import Queue
from orchestrator.tracking import Exporter

class Nothing:
    def capacity(self): return Capacity(cpus=0, gpus=0)
    def ended(self): return ()

database, folder = Database(sys.argv[1]), Path(sys.argv[2])
bench = Bench(database, LeasePolicy(), folder, folder)
Exporter(bench, database, f"sqlite:///{folder}/mlflow.sqlite3", folder)
dispatcher = Dispatcher(Queue(database, LeasePolicy()), Nothing())
for _ in range(8):
    dispatcher.tick()
print("idle", flush=True)
sys.stdin.read()
"""
"""All of the dispatcher process but Ray, which is not ours, and MLflow, which is imported at the first export."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table."""

    path: str
    measured: float
    unit: str
    target: str
    met: bool | None
    """None where there is no target."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The running api process and its database."""

    host: str
    port: int
    process: psutil.Process
    database: Database
    queue: Queue
    folder: Path

    def cpu_seconds(self) -> float:
        """What the api process has computed so far: on a busy machine it tells more than the clock."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def connection(self) -> http.client.HTTPConnection:
        """A connection of its own; the standard library's client costs a tenth of others' time."""
        return http.client.HTTPConnection(self.host, self.port, timeout=60)


def measure(service: Service) -> Iterator[Figure]:
    """Everything but the peer, in the order in which one needs the other's data."""
    yield memory(service)
    yield from ingest(service)
    yield from charts(service)
    yield submission(service)
    yield from lists(service)
    yield from requests(service)


def memory(service: Service) -> Figure:
    """Resident sets of both idle processes."""
    call(service.connection(), "GET", "/healthz")
    url = f"sqlite:///{service.folder / 'bench.sqlite3'}"
    command = [sys.executable, "-c", DISPATCHER_WITHOUT_RAY, url, str(service.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dispatcher:
        assert dispatcher.stdin is not None
        assert dispatcher.stdout is not None
        dispatcher.stdout.readline()
        of_dispatcher = psutil.Process(dispatcher.pid).memory_info().rss / 2**20
        dispatcher.stdin.close()
    of_api = service.process.memory_info().rss / 2**20
    note = f"api {of_api:.0f}, dispatcher {of_dispatcher:.0f}"
    total = of_api + of_dispatcher
    return Figure(
        path="idle memory, api + dispatcher without Ray",
        measured=total,
        unit="MiB",
        target="≤ 250",
        met=total <= 250,
        note=note,
    )


def ingest(service: Service) -> Iterator[Figure]:
    """A million points of one run in batches of 10,000, then a worker's usual batches of 1,000 from two runs."""
    lease = _lease(service, steps=POINTS)
    bodies = [_batch(number, 10_000) for number in range(POINTS // 10_000)]
    busy = service.cpu_seconds()
    seconds = _send(service, lease, bodies)
    rate = POINTS / seconds
    busy = service.cpu_seconds() - busy
    yield Figure(
        path="points through HTTP, batches of 10,000",
        measured=rate,
        unit="points/s",
        target="≥ 100,000",
        met=rate >= 100_000,
        note=f"{POINTS / busy:,.0f} a second of the api's processor time",
    )
    leases = [_lease(service, steps=POINTS) for _ in range(2)]
    usual = [_batch(number, 1_000) for number in range(100)]
    threads = [threading.Thread(target=_send, args=(service, each, usual)) for each in leases]
    busy = service.cpu_seconds()
    seconds = timed(lambda: _together(threads))
    rate, busy = 2 * 100 * 1_000 / seconds, service.cpu_seconds() - busy
    yield Figure(
        path="points through HTTP, batches of 1,000, 2 workers",
        measured=rate,
        unit="points/s",
        target="≥ 100,000",
        met=rate >= 100_000,
        note=f"{2 * 100 * 1_000 / busy:,.0f} a second of the api's processor time",
    )


def charts(service: Service) -> Iterator[Figure]:
    """One metric of the run of a million points in 800 ranges."""
    path = f"/v1/points?run={_first_run(service)}&metric=train_loss&buckets=800"
    connection = service.connection()
    busy = service.cpu_seconds()
    cold = 1000 * timed(lambda: call(connection, "GET", path))
    busy = 1000 * (service.cpu_seconds() - busy)
    again = [1000 * timed(lambda: call(connection, "GET", path)) for _ in range(9)]
    yield Figure(
        path="chart of 1e6 points, cold",
        measured=cold,
        unit="ms",
        target="≤ 150",
        met=cold <= 150,
        note=f"{busy:.0f} ms of processor time; again: median {median(again):.0f} ms",
    )


def submission(service: Service) -> Figure:
    """One experiment of 1,000 runs."""
    connection = service.connection()
    rates = [n * 1e-4 for n in range(1, 41)]
    bodies = [_spec(f"thousand {n}", rates, range(25)).model_dump_json().encode() for n in range(5)]
    seconds = [timed(lambda body=body: call(connection, "POST", "/v1/experiments", body)) for body in bodies]  # type: ignore[misc]
    middle = median(seconds)
    return Figure(
        path="submit an experiment of 1,000 runs", measured=middle, unit="s", target="≤ 0.5", met=middle <= 0.5
    )


def lists(service: Service) -> Iterator[Figure]:
    """A page of a list of 10,000 runs (and those of the other measurements), sorted and filtered."""
    connection = service.connection()
    body = _spec("ten thousand", [n * 1e-4 for n in range(1, 41)], range(250)).model_dump_json().encode()
    call(connection, "POST", "/v1/experiments", body)
    paths = {
        "sorted by loss and filtered": "/v1/runs?sort=-last_val_loss&status=queued&model=gpt2-tiny&limit=50",
        "sorted by rate": "/v1/runs?sort=lr&limit=50",
        "in order": "/v1/runs?limit=50",
    }
    for name, path in paths.items():
        milliseconds = [1000 * timed(lambda path=path: call(connection, "GET", path)) for _ in range(9)]  # type: ignore[misc]
        middle = median(milliseconds)
        yield Figure(
            path=f"page of 50 of 10,000 runs, {name}",
            measured=middle,
            unit="ms",
            target="≤ 50",
            met=middle <= 50,
            note=f"first {milliseconds[0]:.0f} ms",
        )


def requests(service: Service) -> Iterator[Figure]:
    """Sixteen clients that look at runs, and sixteen that submit small experiments."""
    run = f"/v1/runs/{_first_run(service)}"
    yield _load(service, "GET run, 16 clients", 800, 3_000, lambda connection, _: call(connection, "GET", run))
    body = _spec("small", (1e-3,), (1,)).model_dump_json().encode()
    yield _load(
        service,
        "submit a small experiment, 16 clients",
        700,
        1_500,
        lambda connection, _: call(connection, "POST", "/v1/experiments", body),
    )


def peer(figures: list[Figure], folder: Path) -> Iterator[Figure]:
    """MLflow's server over SQLite, in the same minute on the same machine: `log_batch` and `create_run` over HTTP."""
    with mlflow_server(folder) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=60)
        new = json.dumps({"experiment_id": "0"}).encode()
        made = [0.0] * 100

        def create() -> dict[str, Any]:
            return json.loads(call(connection, "POST", "/api/2.0/mlflow/runs/create", new))  # type: ignore[no-any-return]

        run_id = create()["run"]["info"]["run_id"]
        made = [timed(create) for _ in made]
        metrics = [
            json.dumps({"run_id": run_id, "metrics": [_metric(part, row) for row in range(1_000)]}).encode()
            for part in range(20)
        ]
        seconds = timed(lambda: [call(connection, "POST", "/api/2.0/mlflow/runs/log-batch", each) for each in metrics])
    rate = 20_000 / seconds
    slowest = min(each.measured for each in figures if each.path.startswith("points through HTTP"))
    yield Figure(path="MLflow log_batch(1000) over HTTP", measured=rate, unit="metrics/s", target="", met=None)
    ratio = slowest / rate
    yield Figure(
        path="our points/s by MLflow's metrics/s",
        measured=ratio,
        unit="×",
        target="≥ 20",
        met=ratio >= 20,
        note="a point holds up to a dozen metrics; the slower of our two rates",
    )
    ours = next(each.measured for each in figures if each.path.startswith("submit a small"))
    ratio = ours / (1 / median(made))
    yield Figure(
        path="our submissions/s by MLflow's create_run/s",
        measured=ratio,
        unit="×",
        target="≥ 20",
        met=ratio >= 20,
        note=f"MLflow {1 / median(made):.0f}/s by one client",
    )


# Helpers, in the order of their use


def call(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None, token: str | None = None
) -> bytes:
    """One request on a connection that stays open; raises where the answer is not a success."""
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


def _spec(name: str, rates: Any, seeds: Any, steps: int = 10) -> ComparisonSpec:
    return ComparisonSpec(
        name=name,
        workload=Workload(model="gpt2-tiny", budget=Budget(steps=steps)),
        candidates=(Candidate(optimizer="adamw", learning_rates=tuple(rates)),),
        seeds=tuple(seeds),
    )


def _lease(service: Service, steps: int) -> Any:
    call(
        service.connection(), "POST", "/v1/experiments", _spec("long", (1e-3,), (1,), steps).model_dump_json().encode()
    )
    (lease,) = service.queue.claim(cpus=1, gpus=0, limit=1)
    call(service.connection(), "POST", f"/v1/attempts/{lease.run_id}/1/hello", b"{}", lease.token)
    return lease


def _batch(number: int, size: int) -> bytes:
    noise = np.random.default_rng(number).normal(3.0, 0.1, (size, 4)).tolist()
    points = tuple(
        Point(
            step=number * size + row,
            tokens=(number * size + row) * 4096,
            train_loss=numbers[0],
            lr=1e-3,
            grad_norm=numbers[1],
            step_seconds=abs(numbers[2]),
            optimizer_seconds=abs(numbers[3]),
        )
        for row, numbers in enumerate(noise)
    )
    return PointsBatch(sequence=number, points=points).model_dump_json(exclude_none=True).encode()


def _send(service: Service, lease: Any, bodies: list[bytes]) -> float:
    """Seconds in which one worker's batches are accepted, one after the other."""
    connection, path = service.connection(), f"/v1/attempts/{lease.run_id}/1/points"
    return timed(lambda: [call(connection, "POST", path, body, lease.token) for body in bodies])


def _together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _first_run(service: Service) -> str:
    runs = json.loads(call(service.connection(), "GET", "/v1/runs?sort=started_at&limit=1"))
    return str(runs["items"][0]["id"])


def _load(
    service: Service, name: str, target: int, count: int, request: Callable[[http.client.HTTPConnection, int], object]
) -> Figure:
    """Requests a second of all clients together, and the 99th percentile of one's wait."""
    waits: list[float] = []

    def client() -> None:
        connection = service.connection()
        mine = [timed(lambda n=n: request(connection, n)) for n in range(count // CLIENTS)]  # type: ignore[misc]
        waits.extend(mine)

    busy = service.cpu_seconds()
    seconds = timed(lambda: _together([threading.Thread(target=client) for _ in range(CLIENTS)]))
    busy = service.cpu_seconds() - busy
    rate, late = len(waits) / seconds, 1000 * quantiles(waits, n=100)[98]
    return Figure(
        path=name,
        measured=rate,
        unit="requests/s",
        target=f"≥ {target}, p99 ≤ 60 ms",
        met=rate >= target and late <= 60,
        note=f"p99 {late:.0f} ms; {1000 * busy / len(waits):.2f} ms of processor time each",
    )


def _metric(part: int, row: int) -> dict[str, Any]:
    return {"key": "train_loss", "value": 3.0 + row / 1e4, "timestamp": 1_700_000_000_000, "step": 1_000 * part + row}


@contextmanager
def running_service(folder: Path) -> Iterator[Service]:
    """An api process on a fresh SQLite database."""
    port = _free_port()
    database = Database(f"sqlite:///{folder / 'bench.sqlite3'}")
    database.migrate()
    command = [sys.executable, "-m", "api.cli", "api", "--data", str(folder), "--port", str(port)]
    with _process(command, f"http://127.0.0.1:{port}", "/healthz", folder / "api.log") as process:
        queue = Queue(database, LeasePolicy())
        yield Service(host="127.0.0.1", port=port, process=process, database=database, queue=queue, folder=folder)
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
        children: list[psutil.Process] = []
        try:
            deadline = time.monotonic() + START_SECONDS
            while not answers(url, path=path):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[2]} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield psutil.Process(process.pid)
            children = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.terminate()
            for child in children:
                if child.is_running():
                    child.terminate()


def _free_port() -> int:
    listener = listen("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    listener.close()
    return port


def show(figures: list[Figure]) -> None:
    """The table."""
    print(f"{'path':<62}{'measured':>14} {'unit':<11}{'target':<22}{'':<5}note")
    for each in figures:
        met = "" if each.met is None else "yes" if each.met else "NO"
        number = f"{each.measured:,.0f}" if each.measured >= 100 else f"{each.measured:.3g}"
        print(f"{each.path:<62}{number:>14} {each.unit:<11}{each.target:<22}{met:<5}{each.note}")


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="Write the figures there, too.")
    parser.add_argument("--without-mlflow", action="store_true", help="Leave the peer out.")
    arguments = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="adapm-bench-load-") as name:
        folder = Path(name)
        with running_service(folder) as service:
            figures = list(measure(service))
        if not arguments.without_mlflow:
            figures += list(peer(figures, folder))
    show(figures)
    print(f"{time.monotonic() - start:.0f} s; {_machine()}; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        told = {"machine": _machine(), "load": os.getloadavg()[0], "figures": [asdict(each) for each in figures]}
        arguments.json.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def _machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
