"""A simulated cluster: our dispatcher on a real database, with 1,000 slots without machines, and runs that do nothing.

    python -m benchmarks.simulated_cluster --slots 1000 --runs 20000 --database postgresql
    python -m benchmarks.simulated_cluster --part heartbeats --slots 1000
    python -m benchmarks.simulated_cluster --part points --slots 1000
    python -m benchmarks.simulated_cluster --part ray --slots 8 --runs 24

dispatch     the dispatcher in this process, on a runner whose attempts are entries in a list. One more process says
             hello and records results for them, as the api does, after each has held its slot for a while
heartbeats   so many live attempts, and the real api process: heartbeats a second that it answers over HTTP
points       likewise, with batches of 10 points
ray          the real runner on a Ray that believes to have so many CPUs; its actors say hello and finish, nothing else
"""

import argparse
import heapq
import json
import logging
import multiprocessing
import os
import queue as queues
import resource
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import structlog

from benchmarks.load_processes import Service, call, machine, running_service
from orchestrator.dispatch.dispatcher import Dispatcher, EndedAttempt
from orchestrator.dispatch.ray_process import start_embedded_ray, stop_embedded_ray
from orchestrator.jobs import Lease, LeasePolicy, LiveAttempt, RunId
from orchestrator.store.database import Database
from orchestrator.store.leadership import LeaderLoop, Leadership
from orchestrator.store.queue.capacity import Node, NodeId
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import claim, comparison_spec, postgresql_programs, postgresql_server, result
from worker.records.protocol import PointsBatch
from worker.records.result import Point

SLOTS_A_NODE = 8
RUNS_AN_EXPERIMENT = 250
CONNECTIONS = 8
"""The connections of workers to the api at the same moment."""
TALKERS = 32
"""Threads that say hello and finish, as many as the api has handlers at work."""

Word = tuple[str, int, str]
"""Run, attempt, token."""


class SimulatedRunner:
    """A runner of so many slots; its attempts are carried out by `crowd`."""

    def __init__(self, slots: int, orders: Any, reports: Any) -> None:
        self._nodes = tuple(Node(id=NodeId(f"n{n}"), cpus=SLOTS_A_NODE, gpus=0) for n in range(slots // SLOTS_A_NODE))
        self._orders, self._done = orders, reports
        self.started = self.in_use = 0

    def nodes(self) -> Sequence[Node]:
        """Return as many machines as the slots fill."""
        return self._nodes

    def start(self, lease: Lease, node: NodeId) -> None:
        """Hand it over."""
        self._orders.put((lease.run_id, lease.attempt, lease.token))
        self.started += 1
        self.in_use += 1

    def adopt(self, live: Sequence[LiveAttempt]) -> Sequence[LiveAttempt]:
        """Adopt nothing: nothing was there before."""
        return ()

    def collect_ended(self) -> Sequence[EndedAttempt]:
        """Return the attempts that the crowd has finished."""
        attempts: list[EndedAttempt] = []
        while True:
            try:
                run_id, attempt = self._done.get_nowait()
            except queues.Empty:
                return attempts
            self.in_use -= 1
            attempts.append(
                EndedAttempt(
                    run_id=RunId(run_id), attempt=attempt, interrupted=False, message="the worker said: succeeded"
                )
            )

    def kill(self, run_id: RunId, attempt: int) -> None:
        """Kill nothing: there is no process."""

    def close(self, grace_seconds: float) -> Sequence[EndedAttempt]:
        """Close nothing."""
        return ()


def crowd(url: str, orders: Any, reports: Any, hold_seconds: float) -> None:
    """Answer every order in a process of its own: say hello, hold the slot, finish. It ends at an order of None."""
    database = Database(url)
    services = make_services(database)
    report = result()
    due: list[tuple[float, Word]] = []
    begun: queues.SimpleQueue[tuple[float, Word]] = queues.SimpleQueue()

    def begin(order: Word) -> None:
        services.attempts.hello(*order)
        begun.put((time.monotonic() + hold_seconds, order))

    def end(order: Word) -> None:
        services.attempts.finish(*order, report)
        reports.put(order[:2])

    with ThreadPoolExecutor(TALKERS) as pool:
        while True:
            try:
                order = orders.get(timeout=0.01)
                if order is None:
                    break
                pool.submit(begin, order)
            except queues.Empty:
                pass
            while not begun.empty():
                heapq.heappush(due, begun.get())
            while due and due[0][0] <= time.monotonic():
                pool.submit(end, heapq.heappop(due)[1])
    database.close()


@dataclass
class Ticks:
    """The dispatcher's work, second by second."""

    tick_seconds: list[float] = field(default_factory=list)
    claim_seconds: list[float] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    in_use: list[int] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)


def dispatch(url: str, slots: int, runs: int, hold_seconds: float, most_seconds: float) -> dict[str, object]:
    """Work off so many runs, or as many of them as the time allows; how fast, how full, at which cost."""
    database = Database(url)
    services = make_services(database)
    for first in range(0, runs, RUNS_AN_EXPERIMENT):
        services.experiments.submit(comparison_spec(seeds=tuple(range(min(RUNS_AN_EXPERIMENT, runs - first)))))
    context = multiprocessing.get_context("spawn")
    orders, reports = context.Queue(), context.Queue()
    people = context.Process(target=crowd, args=(url, orders, reports, hold_seconds))
    people.start()
    queue, runner, ticks = Queue(database, LeasePolicy()), SimulatedRunner(slots, orders, reports), Ticks()
    _time_claims(queue, ticks)
    loop = LeaderLoop(Dispatcher(queue, runner, Leadership(database, "benchmark")))
    process, cpu_before, started = psutil.Process(), _cpu_seconds(), time.monotonic()
    wake = threading.Event()
    while (runner.started < runs or runner.in_use) and time.monotonic() - started < most_seconds:
        begun = time.monotonic()
        pause = loop.tick()
        ticks.tick_seconds.append(time.monotonic() - begun)
        ticks.in_use.append(runner.in_use)
        ticks.memory_bytes.append(process.memory_info().rss)
        wake.wait(pause)
    seconds, cpu = time.monotonic() - started, _cpu_seconds() - cpu_before
    orders.put(None)
    people.join()
    database.close()
    return {"runs_queued": runs} | _dispatched(ticks, runner.started, slots, seconds, cpu)


def _time_claims(queue: Queue, ticks: Ticks) -> None:
    plain = queue.claim

    def timed(*arguments: Any, **keywords: Any) -> Any:
        begun = time.monotonic()
        leases = plain(*arguments, **keywords)
        if leases:
            ticks.claim_seconds.append(time.monotonic() - begun)
            ticks.claimed.append(len(leases))
        return leases

    queue.claim = timed  # type: ignore[method-assign]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _dispatched(ticks: Ticks, runs: int, slots: int, seconds: float, cpu: float) -> dict[str, object]:
    steady = ticks.in_use[len(ticks.in_use) // 4 : len(ticks.in_use) * 3 // 4]
    quarter = max(len(ticks.memory_bytes) // 4, 1)
    return {
        "runs": runs,
        "slots": slots,
        "seconds": round(seconds, 1),
        "runs_per_second": round(runs / seconds, 1),
        "slots_in_use_median": median(steady),
        "tick_ms_median": round(1e3 * median(ticks.tick_seconds), 1),
        "tick_ms_largest": round(1e3 * max(ticks.tick_seconds), 1),
        "claim_ms_median": round(1e3 * median(ticks.claim_seconds), 1),
        "claim_ms_a_run": round(1e3 * sum(ticks.claim_seconds) / sum(ticks.claimed), 2),
        "dispatcher_cpu_ms_a_run": round(1e3 * cpu / runs, 2),
        "dispatcher_rss_mib_first_quarter": round(max(ticks.memory_bytes[:quarter]) / 2**20, 1),
        "dispatcher_rss_mib_last_quarter": round(max(ticks.memory_bytes[-quarter:]) / 2**20, 1),
    }


def talk(url: str, folder: Path, slots: int, seconds: float, kind: str) -> dict[str, object]:
    """Heartbeats, or batches of points, a second that one api process answers, for so many live attempts."""
    with running_service(folder, url) as service:
        services = make_services(service.database)
        for first in range(0, slots, RUNS_AN_EXPERIMENT):
            services.experiments.submit(comparison_spec(seeds=tuple(range(min(RUNS_AN_EXPERIMENT, slots - first)))))
        leases: list[Lease] = []
        while len(leases) < slots:
            leases += claim(service.queue, cpus=slots, limit=250)
        with ThreadPoolExecutor(TALKERS) as pool:
            list(pool.map(lambda lease: services.attempts.hello(lease.run_id, lease.attempt, lease.token), leases))
        cpu_start = service.cpu_seconds()
        waits, elapsed = _talk(service, leases, seconds, kind)
        cpu = service.cpu_seconds() - cpu_start
    needed = {"heartbeats": slots / LeasePolicy().heartbeat_seconds, "points": slots}[kind]
    return {
        "live_attempts": slots,
        "requests_needed_per_second": f"{needed:g}" + (", at most" if kind == "points" else ""),
        "requests_per_second": round(len(waits) / elapsed, 1),
        "request_ms_median": round(1e3 * median(waits), 1),
        "request_ms_p99": round(1e3 * sorted(waits)[int(0.99 * len(waits))], 1),
        "api_cpu_ms_a_request": round(1e3 * cpu / len(waits), 2),
    }


def _talk(service: Service, leases: list[Lease], seconds: float, kind: str) -> tuple[list[float], float]:
    """All leases in turn, from several connections, as fast as they are answered."""
    deadline = time.monotonic() + seconds
    beat = b'{"step": 1, "device_seconds": 1.0}'

    def caller(share: list[Lease]) -> list[float]:
        waits: list[float] = []
        connection = service.connection()
        while time.monotonic() < deadline:
            turn, index = divmod(len(waits), len(share))
            lease = share[index]
            path = f"/v1/attempts/{lease.run_id}/{lease.attempt}/{'points' if kind == 'points' else 'heartbeat'}"
            body = _points(turn) if kind == "points" else beat
            begun = time.monotonic()
            call(connection, "POST", path, body, lease.token)
            waits.append(time.monotonic() - begun)
        connection.close()
        return waits

    begun = time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [leases[start::CONNECTIONS] for start in range(CONNECTIONS)]
        waits = [wait for caller_waits in pool.map(caller, shares) for wait in caller_waits]
    return waits, time.monotonic() - begun


@lru_cache
def _points(number: int) -> bytes:
    """The body of an attempt's batch of that number."""
    steps = range(10 * number + 1, 10 * number + 11)
    points = [Point(step=step, tokens=step * 1024, train_loss=3.0 / step, step_seconds=0.1) for step in steps]
    return PointsBatch.from_points(number, points).model_dump_json().encode()


class IdleActor:
    """An actor in the place of the worker's: hello, finish, and the word for the log."""

    def last_word(self) -> str:
        """Return a word like the real one."""
        return "succeeded"

    def process_id(self) -> int:
        """Return an id like the real one."""
        return os.getpid()

    def execute(self, service_url: str, run_id: str, attempt: int, token: str, gpus: int, group: None) -> str:
        """Say hello and finish to the database at that URL."""
        database = Database(service_url)
        services = make_services(database)
        services.attempts.hello(run_id, attempt, token)
        services.attempts.finish(run_id, attempt, token, result())
        database.close()
        return "succeeded"


def on_ray(url: str, folder: Path, slots: int, runs: int) -> dict[str, object]:
    """The real runner on an embedded Ray that is told of so many CPUs, however many there are."""
    database = Database(url)
    services = make_services(database)
    submitted = services.experiments.submit(comparison_spec(seeds=tuple(range(runs)))).experiment
    start_embedded_ray(folder, slots)
    from orchestrator.dispatch import ray_runner  # after Ray's environment is set

    # On purpose: the real runner, with actors that train nothing.
    ray_runner.AttemptActor = IdleActor  # type: ignore[assignment, attr-defined]
    try:
        queue, runner = Queue(database, LeasePolicy()), ray_runner.RayRunner(url)
        loop = LeaderLoop(Dispatcher(queue, runner, Leadership(database, "benchmark")))
        tick_seconds, started = [], time.monotonic()
        while not services.experiments.get(submitted.id).counts.done():
            begun = time.monotonic()
            loop.tick()
            tick_seconds.append(time.monotonic() - begun)
            time.sleep(0.1)
        seconds = time.monotonic() - started
    finally:
        stop_embedded_ray(folder)
    metrics = services.monitor.metrics()
    database.close()
    return {
        "runs": runs,
        "slots": slots,
        "seconds": round(seconds, 1),
        "runs_per_second": round(runs / seconds, 2),
        "lease_to_hello_seconds_mean": round(metrics.dispatch.seconds / metrics.dispatch.count, 2),
        "tick_ms_median": round(1e3 * median(tick_seconds), 1),
    }


@contextmanager
def fresh_database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a migrated database of that kind; PostgreSQL's is a private server's with fsync on."""
    if kind == "sqlite":
        url = f"sqlite:///{folder / 'bench.sqlite3'}"
        _migrate(url)
        yield url
        return
    programs = postgresql_programs()
    if programs is None:
        raise SystemExit("PostgreSQL's server programs (initdb, postgres) are not installed; try --database sqlite")
    with postgresql_server(programs, durable=True) as server:
        url = server.url(server.create_database())
        _migrate(url)
        yield url


def _migrate(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.close()


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("dispatch", "heartbeats", "points", "ray"), default="dispatch")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--hold-seconds", type=float, default=0.0, help="how long a run keeps its slot")
    parser.add_argument("--most-seconds", type=float, default=3600.0, help="after which the rest is left waiting")
    parser.add_argument("--seconds", type=float, default=15.0, help="of heartbeats or points")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    logging.getLogger().setLevel(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, fresh_database(chosen.database, Path(name)) as url:
        folder = Path(name)
        if chosen.part == "dispatch":
            figures = dispatch(url, chosen.slots, chosen.runs, chosen.hold_seconds, chosen.most_seconds)
        elif chosen.part in ("heartbeats", "points"):
            figures = talk(url, folder, chosen.slots, chosen.seconds, chosen.part)
        else:
            figures = on_ray(url, folder, chosen.slots, chosen.runs)
    load = f"{load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    figures = {"part": chosen.part, "database": chosen.database, "machine": machine(), "load": load} | figures
    for key, value in figures.items():
        print(f"{key:<34}{value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
