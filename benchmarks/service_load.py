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
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import psutil

from benchmarks.load_processes import (
    DISPATCHER_WITHOUT_RAY,
    Service,
    call,
    machine,
    mlflow_server,
    running_service,
    timed,
)
from orchestrator.experiments import Candidate, ComparisonSpec
from orchestrator.placement import Node, NodeId, Room
from worker.protocol import PointsBatch
from worker.record import Point
from worker.spec import Budget, Workload

POINTS = 1_000_000
CLIENTS = 16


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
        while dispatcher.stdout.readline().strip() not in ("idle", ""):  # its log comes first
            pass
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
    ((lease, _),) = service.queue.claim(Room([Node(id=NodeId("here"), cpus=1, gpus=0)]), 1)
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
    return PointsBatch.of(number, points).body()


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
    print(f"{time.monotonic() - start:.0f} s; {machine()}; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        told = {"machine": machine(), "load": os.getloadavg()[0], "figures": [asdict(each) for each in figures]}
        arguments.json.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
