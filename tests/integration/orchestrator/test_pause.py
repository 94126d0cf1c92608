"""A run that is paused while it trains, and resumed, gives the same losses to the bit as one that was left alone."""

from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from orchestrator.jobs import Lease, LeasePolicy, RunAction, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from tests.factories.dataset import prepare_made_dataset
from tests.factories.fork_server import fork_server
from tests.factories.stores import claim
from tests.factories.waiting import until
from tests.integration.api_service import Service, comparison_fields, serving
from worker.attempt import execute
from worker.records.result import Point

STEPS = 200


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    return fork_server()


def test_a_paused_and_resumed_run_gives_the_bits_of_one_that_was_left_alone(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    """Two equal runs on the real api, each attempt a real process; the first is paused in the middle."""
    prepare_made_dataset(tmp_path / "datasets")
    with serving(tmp_path, LeasePolicy(heartbeat_seconds=0.05)) as service:
        paused, whole = submit(service), submit(service)
        worker = start(service, processes, paused)
        until(lambda: service.runs.get(paused).step >= 10, "it trains", longest_pause_seconds=0.005)
        service.runs.apply(paused, RunAction.PAUSE)
        worker.join()
        run = service.runs.get(paused)
        assert run.status is RunStatus.PAUSED
        assert 10 <= run.step < STEPS
        stopped_at = run.step
        start(service, processes, whole).join()
        service.runs.apply(paused, RunAction.RESUME)
        start(service, processes, paused).join()

        record = service.runs.get(paused)
        assert record.result is not None
        assert (record.status, record.attempt, record.result.resumed_from_step) == ("succeeded", 2, stopped_at)
        assert losses(service.runs.points(paused)) == losses(service.runs.points(whole))


def submit(service: Service) -> str:
    fields = comparison_fields(candidates=[{"optimizer": "adapm", "learning_rates": [0.002]}], seeds=[1])
    fields["workload"]["budget"]["steps"] = STEPS
    fields["workload"]["data"] = {"sequence_length_tokens": 32}
    fields["workload"]["evaluation"] = {"every_steps": 50, "sequences": 8}
    experiment = service.experiments.submit(ComparisonSpec.model_validate(fields)).experiment
    return service.runs.page(experiment_id=experiment.id)[0].id


def start(service: Service, processes: ForkServerContext, run_id: str) -> ForkServerProcess:
    """Claim that run, whose turn it is, and carry it out in a process."""
    (lease,) = claim(service.queue, cpus=1, gpus=0, limit=1)
    assert lease.run_id == run_id
    return begin(service, processes, lease)


def begin(service: Service, processes: ForkServerContext, lease: Lease) -> ForkServerProcess:
    arguments = (service.url, lease.run_id, lease.attempt, lease.token)
    process = processes.Process(target=execute, args=arguments)
    process.start()
    return process


def losses(points: tuple[Point, ...]) -> list[tuple[int, float | None, float | None, float | None]]:
    return [(point.step, point.train_loss, point.val_loss, point.grad_norm) for point in points]
