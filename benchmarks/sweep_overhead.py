"""What Ray Tune costs a trial beyond its training: a real driver, real followers, and trainings that take no time.

A thread stands for dispatcher and workers: it claims each trial and finishes it at once. What is left of the time is
the driver's: Tune's loop, the searcher, adding the run, following it, hearing of its end. The first trials, during
which Ray starts a process for each follower, are told apart.

    python -m benchmarks.sweep_overhead [--trials 30] [--concurrency 1] [--algorithm tpe]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil

from orchestrator.dispatch.ray_process import start_embedded_ray, stop_embedded_ray
from orchestrator.jobs import ExperimentId, LeasePolicy
from orchestrator.services.composition import Services
from orchestrator.store.database import Database
from orchestrator.store.queue.capacity import FreeCapacity, Node, NodeId
from orchestrator.store.queue.queue import Queue
from orchestrator.sweeps.keeper import DriverOrder
from tests.factories.services import make_services
from tests.factories.stores import result
from tests.factories.sweep import sweep_spec
from worker.records.protocol import PointsBatch
from worker.records.result import Point

COLD = 3
"""Trials that are not counted as warm, times the concurrency."""


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--algorithm", default="tpe")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), options.trials, options.concurrency, options.algorithm)))


def measure(folder: Path, count: int, concurrency: int, algorithm: str) -> dict[str, float]:
    """Seconds a warm trial, and the processor's seconds of all processes of the driver's side, each trial."""
    url = f"sqlite:///{folder / 'bench.sqlite3'}"
    database = Database(url)
    database.migrate()
    services = make_services(database, folder)
    space = {"lr": {"kind": "log-uniform", "low": 1e-4, "high": 1e-1}}
    spec = sweep_spec(
        candidates=[{"optimizer": "adamw", "space": space}], trials=count, concurrency=concurrency, algorithm=algorithm
    )
    sweep_id = services.experiments.submit(spec).experiment.id
    start_embedded_ray(folder, 2)
    import ray  # after `start_embedded_ray` has set its variables

    order = DriverOrder(
        sweep_id=sweep_id,
        database_url=url,
        ray_address=ray.get_runtime_context().gcs_address,
        folder=str(folder / "sweep"),
    )
    stop = threading.Event()
    worker = threading.Thread(target=finish_all, args=(services, Queue(database, LeasePolicy()), stop))
    worker.start()
    started = time.monotonic()
    driver = subprocess.Popen([sys.executable, "-m", "api.cli", "sweep-driver"], stdin=subprocess.PIPE)
    assert driver.stdin is not None
    driver.stdin.write(order.line())
    driver.stdin.flush()
    before = _processor_seconds(os.getpid())
    peak_bytes, used = 0, 0.0
    while driver.poll() is None:
        used = max(used, _processor_seconds(os.getpid()) - before)
        try:
            peak_bytes = max(peak_bytes, psutil.Process(driver.pid).memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.2)
    driver.wait()
    wall = time.monotonic() - started
    stop.set()
    worker.join()
    runs = services.runs.page(experiment_id=ExperimentId(sweep_id), limit=1000)
    stop_embedded_ray(folder)
    database.close()
    begun = [run.created_at for run in runs][COLD * concurrency :]
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    return {
        "trials": len(runs),
        "concurrency": concurrency,
        "warm_seconds_a_trial_median": round(median(gaps), 3),
        "warm_seconds_a_trial_worst": round(max(gaps), 3),
        "wall_seconds": round(wall, 1),
        "processor_seconds_a_trial": round(used / max(len(runs), 1), 3),
        "driver_peak_mb": round(peak_bytes / 1e6),
        "load": round(os.getloadavg()[0], 1),
    }


def finish_all(services: Services, queue: Queue, stop: threading.Event) -> None:
    """Claim and finish trials, which takes some milliseconds each, until told to stop."""
    while not stop.wait(0.02):
        room = FreeCapacity([Node(id=NodeId("here"), cpus=64, gpus=0)])
        for lease, _ in queue.claim(room, 64):
            services.attempts.hello(lease.run_id, lease.attempt, lease.token)
            loss = 2.0 + abs(lease.spec.optimizer.lr - 0.01)
            point = Point(step=10, tokens=10, val_loss=loss)
            services.attempts.append_points(
                lease.run_id, lease.attempt, lease.token, PointsBatch.from_points(sequence=0, points=(point,))
            )
            services.attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=loss))


def _processor_seconds(root: int) -> float:
    """Of a process and all of its children: driver, followers, and Ray's own processes."""
    total = 0.0
    for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
