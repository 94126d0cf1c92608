"""Runs a second through the queue: claim, hello, finish, each acknowledged after it is forced to disk.

    python -m benchmarks.queue_rates --runs 1000 --rounds 3 --json benchmarks/results/queue.json

One dispatcher claims batches as large as the workers can take; so many workers say hello and record a result, each in a
thread, as the api's handlers do. `claim + finish` adds up the time of all claims and of all results, `whole life` has
everything at once. On the same PostgreSQL, in turns with it, procrastinate (if it is installed) fetches and finishes as
many jobs with as many concurrent workers. The server is a private one with fsync on.
"""

import argparse
import asyncio
import json
import platform
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from orchestrator.jobs import Lease, LeasePolicy
from orchestrator.services.composition import Services
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import (
    PostgresqlServer,
    claim,
    comparison_spec,
    postgresql_programs,
    postgresql_server,
    result,
)
from worker.cpus import usable_cpus

KINDS = ("claim", "finish", "claim + finish", "whole life: claim, hello, finish")


@dataclass(kw_only=True)
class Rate:
    """A way to work off a queue."""

    name: str
    per_second: list[float] = field(default_factory=list)
    """The rates of the rounds."""


@contextmanager
def fresh_queue(database: Database, runs: int) -> Iterator[tuple[Services, Queue]]:
    """Services with so many waiting runs."""
    services = make_services(database)
    for first in range(0, runs, 250):
        services.experiments.submit(comparison_spec(seeds=tuple(range(min(250, runs - first)))))
    yield services, Queue(database, LeasePolicy())


def work_off(database: Database, runs: int, workers: int) -> float:
    """Runs a second from claim to recorded result."""
    report = result()
    with fresh_queue(database, runs) as (services, queue), ThreadPoolExecutor(workers) as pool:

        def carry_out(lease: Lease) -> None:
            services.attempts.hello(lease.run_id, lease.attempt, lease.token)
            services.attempts.finish(lease.run_id, lease.attempt, lease.token, report)

        started = perf_counter()
        pending = []
        while leases := claim(queue, cpus=workers, limit=workers):
            pending += [pool.submit(carry_out, lease) for lease in leases]
        for future in pending:
            future.result()
        return runs / (perf_counter() - started)


def claim_alone(database: Database, runs: int, workers: int) -> float:
    """Claims a second in batches of `workers`."""
    with fresh_queue(database, runs) as (_, queue):
        started = perf_counter()
        while claim(queue, cpus=workers, limit=workers):
            pass
        return runs / (perf_counter() - started)


def finish_alone(database: Database, runs: int, workers: int) -> float:
    """Recorded results a second from `workers` threads, of runs that were claimed and greeted before."""
    report = result()
    with fresh_queue(database, runs) as (services, queue), ThreadPoolExecutor(workers) as pool:
        leases: list[Lease] = []
        while batch := claim(queue, cpus=500, limit=500):
            leases += batch
        list(pool.map(lambda lease: services.attempts.hello(lease.run_id, lease.attempt, lease.token), leases))
        started = perf_counter()
        list(pool.map(lambda lease: services.attempts.finish(lease.run_id, lease.attempt, lease.token, report), leases))
        return runs / (perf_counter() - started)


async def procrastinate_jobs(conninfo: str, jobs: int, workers: int) -> float:
    """Jobs a second, fetched and finished by procrastinate's own manager."""
    import procrastinate  # if it is installed
    from procrastinate.jobs import Status

    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=conninfo, min_size=workers, max_size=workers)
    )

    @app.task(name="train")  # type: ignore[untyped-decorator]  # the project does not depend on it
    def train(number: int) -> None:
        raise AssertionError(f"job {number} is never carried out")

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for number in range(jobs):
            await train.defer_async(number=number)
        worker_id = await app.job_manager.register_worker()

        async def work() -> None:
            while (job := await app.job_manager.fetch_job(queues=None, worker_id=worker_id)) is not None:
                await app.job_manager.finish_job(job, status=Status.SUCCEEDED, delete_job=False)

        started = perf_counter()
        await asyncio.gather(*[work() for _ in range(workers)])
        return jobs / (perf_counter() - started)


def on_sqlite(measure: Callable[[Database, int, int], float], runs: int, workers: int) -> float:
    """Measure on a fresh file."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/bench.sqlite3")
        database.migrate()
        try:
            return measure(database, runs, workers)
        finally:
            database.close()


def on_postgresql(
    server: PostgresqlServer, measure: Callable[[Database, int, int], float], runs: int, workers: int
) -> float:
    """Measure on the emptied database."""
    with server.database() as database:
        return measure(database, runs, workers)


def measure_all(runs: int, workers: int, rounds: int) -> list[Rate]:
    """Every way, in turns, so that a busy machine slows all of them alike."""
    programs = postgresql_programs()
    sqlite = [Rate(name=f"SQLite, {name}") for name in KINDS]
    for _ in range(rounds):
        add_round(sqlite, partial(on_sqlite, runs=runs, workers=workers))
    if programs is None:
        return sqlite
    rates = [Rate(name=f"PostgreSQL, {name}") for name in KINDS]
    peer = Rate(name="procrastinate, fetch + finish")
    with postgresql_server(programs, durable=True) as server:
        for _ in range(rounds):
            add_round(rates, partial(on_postgresql, server, runs=runs, workers=workers))
            with suppress(ModuleNotFoundError):
                url = server.url(server.create_database())
                peer.per_second.append(asyncio.run(procrastinate_jobs(url, runs, workers)))
    return [*sqlite, *rates, *([peer] if peer.per_second else [])]


def add_round(rates: list[Rate], measured: Callable[[Callable[[Database, int, int], float]], float]) -> None:
    """Add one round of `KINDS`."""
    claims, finishes, lives = (measured(measure) for measure in (claim_alone, finish_alone, work_off))
    for rate, value in zip(rates, (claims, finishes, 1 / (1 / claims + 1 / finishes), lives), strict=True):
        rate.per_second.append(value)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rates = measure_all(chosen.runs, chosen.workers, chosen.rounds)
    print(f"{chosen.runs} runs, {chosen.workers} workers, {chosen.rounds} rounds; a second, median (lowest to highest)")
    for rate in rates:
        low, high = min(rate.per_second), max(rate.per_second)
        print(f"{rate.name:<46}{median(rate.per_second):>8,.0f}   ({low:,.0f} to {high:,.0f})")
    if chosen.json:
        machine = {"cpus": usable_cpus(), "platform": platform.platform(), "python": platform.python_version()}
        document = {
            "machine": machine,
            "runs": chosen.runs,
            "workers": chosen.workers,
            "rates": list(map(asdict, rates)),
        }
        chosen.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
