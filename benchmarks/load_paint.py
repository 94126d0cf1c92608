"""The data of the pages' benchmarks: an experiment of 1,000 runs with 1,000 points each, and a run of a million
points."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.load_processes import Service
from orchestrator.jobs import Lease
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.services.composition import Services
from tests.factories.services import make_services
from tests.factories.stores import claim, result
from worker.records.protocol import Heartbeat, PointsBatch
from worker.records.result import Point
from worker.spec.run import Budget, Evaluation, Workload

OPTIMIZERS = ("adamw", "adapm", "adapm-mini", "adam-mini")
RATES = (1e-3, 2e-3, 3e-3, 4e-3, 5e-3)
SEEDS = 50
STEPS = 1_000
EVALUATED_EVERY = 50
THREADS = 16
SHAPES = 20
"""Different curves; every run has one of them, and a final loss of its own."""
MANY_POINTS = 1_000_000
AT_ONCE = 10_000
"""Points in a batch of the long run: the most that one may have."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The data that the pages show."""

    experiment_id: str
    live: Lease
    """The first run of the experiment: still at work."""
    long_run_id: str
    """A run of its own experiment, with a million points."""


def written(service: Service) -> Shown:
    """Write both through the store, as a service would have over weeks."""
    services = make_services(service.database, service.folder)
    long_run_id = _long_run(services, service)
    experiment_id = services.experiments.submit(_spec("a thousand runs", OPTIMIZERS, RATES, SEEDS, STEPS)).experiment.id
    count = len(OPTIMIZERS) * len(RATES) * SEEDS
    leases = claim(service.queue, cpus=count, limit=count)
    curves = [PointsBatch.from_points(0, _points(shape, 0, STEPS, STEPS)) for shape in range(SHAPES)]

    def lived(numbered: tuple[int, Lease]) -> None:
        number, lease = numbered
        identity = lease.run_id, lease.attempt, lease.token
        services.attempts.hello(*identity)
        services.attempts.append_points(*identity, curves[number % SHAPES])
        if number == 0:
            services.attempts.heartbeat(*identity, Heartbeat(step=STEPS, device_seconds=80.0))
        else:
            final = 3 + number * 7919 % 1000 / 1000
            services.attempts.finish(*identity, result(final_val_loss=final, steps=STEPS, device_seconds=80.0))

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lived, enumerate(leases)))
    return Shown(experiment_id=experiment_id, live=leases[0], long_run_id=long_run_id)


def _long_run(services: Services, service: Service) -> str:
    services.experiments.submit(_spec("a million points", ("adamw",), (1e-3,), 1, MANY_POINTS))
    (lease,) = claim(service.queue, cpus=1, limit=1)
    identity = lease.run_id, lease.attempt, lease.token
    services.attempts.hello(*identity)
    for number in range(MANY_POINTS // AT_ONCE):
        points = _points(number, number * AT_ONCE, AT_ONCE, MANY_POINTS)
        services.attempts.append_points(*identity, PointsBatch.from_points(number, points))
    services.attempts.finish(*identity, result(final_val_loss=2.5, steps=MANY_POINTS, device_seconds=80_000.0))
    return str(lease.run_id)


def _spec(name: str, optimizers: tuple[str, ...], rates: tuple[float, ...], seeds: int, steps: int) -> ComparisonSpec:
    return ComparisonSpec(
        name=name,
        workload=Workload(
            model="gpt2-tiny", budget=Budget(steps=steps), evaluation=Evaluation(every_steps=EVALUATED_EVERY)
        ),
        candidates=tuple(Candidate(optimizer=name, learning_rates=rates) for name in optimizers),
        seeds=tuple(range(seeds)),
        priority=100,
    )


def _points(seed: int, first: int, count: int, steps: int) -> list[Point]:
    """A noisy curve that falls over `steps`, or a part of it."""
    noise = np.random.default_rng(seed).normal(0, 0.05, (count, 3)).tolist()
    return [
        Point(
            step=step,
            tokens=step * 1024,
            train_loss=2.5 + 3 / (1 + 30 * step / steps) + jitter[0],
            val_loss=2.52 + 3 / (1 + 30 * step / steps) if step % EVALUATED_EVERY == 0 else None,
            lr=1e-3,
            grad_norm=abs(1 + jitter[1]),
            step_seconds=0.08 + abs(jitter[2]),
            optimizer_seconds=0.01,
        )
        for step, jitter in enumerate(noise, start=first)
    ]
