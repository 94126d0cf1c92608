"""The time from submit to the worker's hello, through the whole service, and the device time of a short run; a bare Ray
actor.

    python -m benchmarks.start_latency [--times 20] [--json FILE]

Each experiment has one run of ten steps of gpt2-tiny and is submitted over HTTP when the one before has ended. The
first one waits until the fork server has imported what an attempt needs; the others are forked from it.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.load_processes import Service, call, machine, running_service, timed
from orchestrator.dispatch.attempt_actor import AttemptActor
from orchestrator.dispatch.ray_process import start_embedded_ray, stop_embedded_ray
from tests.factories.services import make_services
from tests.factories.stores import comparison_spec

MOST_SECONDS = 300.0


class Started:
    """A measured run."""

    def __init__(self, service: Service, seed: int) -> None:
        services = make_services(service.database, service.folder)
        body = comparison_spec(name=f"number {seed}", seeds=(seed,)).model_dump_json().encode()
        submitted = time.time()
        connection = service.connection()
        experiment_id = json.loads(call(connection, "POST", "/v1/experiments", body))["experiment"]["id"]
        connection.close()
        deadline = time.monotonic() + MOST_SECONDS
        while not services.experiments.get(experiment_id).counts.done():
            if time.monotonic() > deadline:
                raise SystemExit(f"a run did not end: see {service.folder / 'api.log'}")
            time.sleep(0.1)
        (run,) = services.runs.read_all(experiment_id)
        (attempt,) = services.runs.attempts(run.id)
        if run.result is None or attempt.started_at is None:
            raise SystemExit(f"the run ended as {run.status}, {attempt.message}; it should have succeeded")
        self.submit_to_hello_ms = 1e3 * (attempt.started_at - submitted)
        self.claim_to_hello_ms = 1e3 * (attempt.started_at - attempt.leased_at)
        self.device_seconds = run.result.device_seconds
        self.host_rss_mib = run.result.peak_memory.host_rss_bytes / 2**20


def through_the_service(times: int) -> dict[str, dict[str, str]]:
    """Each figure of a first run, and the median, smallest and largest over so many that follow."""
    with tempfile.TemporaryDirectory() as name, running_service(Path(name), verb="up") as service:
        first, *later_starts = [Started(service, seed) for seed in range(times + 1)]
    return {
        "first": {figure: f"{value:.1f}" for figure, value in vars(first).items()},
        "later": {figure: _spread([getattr(start, figure) for start in later_starts]) for figure in vars(first)},
    }


def bare(times: int) -> dict[str, str]:
    """Milliseconds of a call of an idle actor, which does nothing, and of creating one and calling it."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        start_embedded_ray(Path(name), 1)
        stack.callback(stop_embedded_ray, Path(name))
        import ray  # after `start_embedded_ray` has set its variables

        def create() -> None:
            actor = ray.remote(num_cpus=1)(AttemptActor).remote()
            ray.get(actor.process_id.remote())
            ray.kill(actor)

        actor = ray.remote(num_cpus=1)(AttemptActor).remote()
        ray.get(actor.process_id.remote())
        calls = [1e3 * timed(lambda: ray.get(actor.process_id.remote())) for _ in range(times)]
        ray.kill(actor)
        return {"call_ms": _spread(calls), "create_and_call_ms": _spread([1e3 * timed(create) for _ in range(times)])}


def _spread(samples: Sequence[float]) -> str:
    return f"{median(samples):.1f} ({min(samples):.1f} to {max(samples):.1f})"


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    load_before = os.getloadavg()[0]
    report = {
        "machine": machine(),
        "runs": chosen.times,
        **through_the_service(chosen.times),
        "bare Ray actor": bare(chosen.times),
        "load": f"{load_before:.1f} before, {os.getloadavg()[0]:.1f} after",
    }
    print(json.dumps(report, indent=2))
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
