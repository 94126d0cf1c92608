"""The load that the service can take: ingest, charts, lists, submissions, streams and memory over HTTP, MLflow beside
it.

    python -m benchmarks.service_load --mixed-minutes 10 --json benchmarks/results/service-load.json
    python -m benchmarks.service_load --parts requests streams

One api process over SQLite in a temporary folder, on loopback; two minutes on an idle machine, and those of
`--mixed-minutes` above its quarter. Clients share the machine's cores with the service, so every figure is a lower
bound; what the api's process has computed, which a busy machine changes less, stands in the notes. Server time is the
whole request, seen from the client; `cold` is the first one that reads those points.
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
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.load_comparison import comparisons
from benchmarks.load_figures import Figure, percentile, show
from benchmarks.load_mixed import experiment_of, mixed
from benchmarks.load_processes import (
    DISPATCHER_WITHOUT_RAY,
    Service,
    call,
    machine,
    mlflow_server,
    running_service,
    timed,
)
from benchmarks.load_streams import streams
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.store.queue.capacity import FreeCapacity, Node, NodeId
from worker.records.protocol import PointsBatch
from worker.records.result import Point
from worker.spec.run import Budget, Workload

POINTS = 1_000_000
CLIENTS = 16


def ready(service: Service) -> Iterator[Figure]:
    """Yield the time from the start of the process to its first answer, over an existing database."""
    yield Figure(
        path="api process ready",
        measured=service.ready_seconds,
        unit="s",
        target="≤ 2",
        met=service.ready_seconds <= 2,
        note=f"{service.ready_cpu_seconds:.1f} s of processor time",
    )


def memory(service: Service) -> Iterator[Figure]:
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
    yield Figure(path="idle memory, api", measured=of_api, unit="MiB", target="≤ 150", met=of_api <= 150)
    note = f"api {of_api:.0f}, dispatcher {of_dispatcher:.0f}"
    total = of_api + of_dispatcher
    yield Figure(
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
    threads = [threading.Thread(target=_send, args=(service, lease, usual)) for lease in leases]
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
    """Yield the time of one metric of the run of a million points in 800 ranges."""
    path = f"/v1/points?run={_first_run(service)}&metric=train_loss&buckets=800"
    connection = service.connection()
    busy = service.cpu_seconds()
    cold = 1000 * timed(lambda: call(connection, "GET", path))
    busy = 1000 * (service.cpu_seconds() - busy)
    milliseconds = [1000 * timed(lambda: call(connection, "GET", path)) for _ in range(9)]
    yield Figure(
        path="chart of 1e6 points, cold",
        measured=cold,
        unit="ms",
        target="≤ 150",
        met=cold <= 150,
        note=f"{busy:.0f} ms of processor time; again: median {median(milliseconds):.0f} ms",
    )


def submission(service: Service) -> Iterator[Figure]:
    """Yield the time of one experiment of 1,000 runs."""
    connection = service.connection()
    rates = [n * 1e-4 for n in range(1, 41)]
    bodies = [_spec(f"thousand {n}", rates, range(25)).model_dump_json().encode() for n in range(5)]
    seconds = [timed(partial(call, connection, "POST", "/v1/experiments", body)) for body in bodies]
    middle = median(seconds)
    yield Figure(
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
        milliseconds = [1000 * timed(partial(call, connection, "GET", path)) for _ in range(9)]
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
        200,
        1_500,
        lambda connection, _: call(connection, "POST", "/v1/experiments", body),
    )


def mixing(service: Service, minutes: float) -> Iterator[Figure]:
    """All at once, at a pace that a service must keep for ever."""
    lease = _lease(service, steps=POINTS)
    small = _spec("small", (1e-3,), (1,)).model_dump_json().encode()
    yield from mixed(service, lease, experiment_of(service, lease), small, minutes)


PARTS: dict[str, Callable[[Service], Iterator[Figure]]] = {
    "ready": ready,
    "memory": memory,
    "ingest": ingest,
    "charts": charts,
    "submission": submission,
    "lists": lists,
    "requests": requests,
    "streams": lambda service: streams(service, _lease(service, steps=POINTS)),
    "comparisons": comparisons,
}
"""The parts, in the order in which one needs the other's data."""
NEEDED = {"charts": ("ingest",)}


def peer(figures: list[Figure], folder: Path) -> Iterator[Figure]:
    """MLflow's server over SQLite, in the same minute on the same machine: `log_batch` and `create_run` over HTTP."""
    with mlflow_server(folder) as (host, port):
        connections = [http.client.HTTPConnection(host, port, timeout=60) for _ in range(CLIENTS)]
        new = json.dumps({"experiment_id": "0"}).encode()

        def create(connection: http.client.HTTPConnection) -> dict[str, Any]:
            return json.loads(call(connection, "POST", "/api/2.0/mlflow/runs/create", new))  # type: ignore[no-any-return]

        run_id = create(connections[0])["run"]["info"]["run_id"]
        single = 50 / timed(lambda: [create(connections[0]) for _ in range(50)])
        several = [
            threading.Thread(target=lambda connection=connection: [create(connection) for _ in range(5)])
            for connection in connections
        ]
        joint = 5 * CLIENTS / timed(lambda: _together(several))
        metrics = [
            json.dumps({"run_id": run_id, "metrics": [_metric(part, row) for row in range(1_000)]}).encode()
            for part in range(20)
        ]
        seconds = timed(
            lambda: [call(connections[0], "POST", "/api/2.0/mlflow/runs/log-batch", body) for body in metrics]
        )
    yield Figure(path="MLflow log_batch(1000) over HTTP", measured=20_000 / seconds, unit="metrics/s")
    note = f"{single:.0f}/s by one client, {joint:.0f}/s by {CLIENTS}: the better one"
    yield Figure(path="MLflow create_run over HTTP", measured=max(single, joint), unit="requests/s", note=note)
    rates = [figure.measured for figure in figures if figure.path.startswith("points through HTTP")]
    if rates:
        caveat = "a point holds up to a dozen metrics; the slower of our two rates"
        yield _ratio("our points/s by MLflow's metrics/s", min(rates) / (20_000 / seconds), caveat)
    for figure in figures:
        if figure.path.startswith("submit a small"):
            yield _ratio("our submissions/s by MLflow's create_run/s", figure.measured / max(single, joint), "")


def _ratio(path: str, ratio: float, note: str) -> Figure:
    return Figure(path=path, measured=ratio, unit="×", target="≥ 20", met=ratio >= 20, note=note)


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
    ((lease, _),) = service.queue.claim(FreeCapacity([Node(id=NodeId("here"), cpus=1, gpus=0)]), 1)
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
    return PointsBatch.from_points(number, points).body()


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
        own_waits = [timed(partial(request, connection, n)) for n in range(count // CLIENTS)]
        waits.extend(own_waits)

    busy = service.cpu_seconds()
    seconds = timed(lambda: _together([threading.Thread(target=client) for _ in range(CLIENTS)]))
    busy = service.cpu_seconds() - busy
    rate, late = len(waits) / seconds, 1000 * percentile(waits, 0.99)
    return Figure(
        path=name,
        measured=rate,
        unit="requests/s",
        target=f"≥ {target}, p99 ≤ 60 ms",
        met=rate >= target and late <= 60,
        note=f"p50 {1000 * median(waits):.0f} ms, p99 {late:.0f} ms; "
        f"{1000 * busy / len(waits):.2f} ms of processor time each",
    )


def _metric(part: int, row: int) -> dict[str, Any]:
    return {"key": "train_loss", "value": 3.0 + row / 1e4, "timestamp": 1_700_000_000_000, "step": 1_000 * part + row}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="Write the figures there, too.")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, "mixed", "mlflow"], help="Only these, in their order.")
    parser.add_argument("--mixed-minutes", type=float, default=0.25, help="Of mixed load; 10 for a figure to keep.")
    parser.add_argument("--without-mlflow", action="store_true", help="Leave the peer out.")
    arguments = parser.parse_args()
    wanted = set(arguments.parts or [*PARTS, "mixed", "mlflow"])
    wanted |= {needed for part in wanted for needed in NEEDED.get(part, ())}
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="adapm-bench-load-") as name:
        folder = Path(name)
        figures: list[Figure] = []
        with running_service(folder) as service:
            for part, measured in PARTS.items():
                figures += measured(service) if part in wanted else ()
            if "mixed" in wanted and arguments.mixed_minutes:
                figures += mixing(service, arguments.mixed_minutes)
        if "mlflow" in wanted and not arguments.without_mlflow:
            figures += peer(figures, folder)
    show(figures)
    print(f"{time.monotonic() - start:.0f} s; {machine()}; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        report = {"machine": machine(), "load": os.getloadavg()[0], "figures": [asdict(figure) for figure in figures]}
        arguments.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
