"""A run of two processes through the real service: Ray Train starts them, one is killed, and the losses are one's."""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from api.client.client import Client
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from tests.chaos.processes import attempts_of
from tests.factories.reporters import MemoryReporter
from tests.factories.waiting import until
from worker.records.result import Point
from worker.run import Folders, run
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

SPEC = ComparisonSpec(
    name="two processes",
    workload=Workload(
        model="gpt2-tiny",
        data=DataSpec(sequence_length_tokens=32),
        budget=Budget(steps=10, batch_sequences=4),
        schedule=Schedule(warmup_steps=2),
        evaluation=Evaluation(every_steps=10, sequences=8),
    ),
    candidates=(Candidate(optimizer="adapm", learning_rates=(2e-3,)),),
    seeds=(1,),
    resources=Resources(processes=2),
)


def test_two_processes_have_the_losses_of_one(service_url: str, service_folder: Path, tmp_path: Path) -> None:
    """Each has the whole model and half of the batch; the first one reports for both."""
    with Client(service_url) as client:
        (run_id,) = [run.id for run in client.runs(experiment_id=client.submit(SPEC).experiment.id)]
        until(lambda: client.run(run_id).status is RunStatus.SUCCEEDED, "the run has succeeded")
        record, points = client.run(run_id), client.points(run_id)
    assert record.result is not None
    assert (record.attempt, record.result.processes) == (1, 2)
    assert record.device_seconds >= record.result.device_seconds > record.result.productive_seconds > 0
    single_points = train_alone(SPEC, tmp_path, service_folder)
    assert [point.step for point in points] == [point.step for point in single_points]
    assert record.result.final_val_loss == pytest.approx(single_points[-1].val_loss, rel=2e-4)
    for actual, expected in zip(points[1:], single_points[1:], strict=True):
        assert actual.train_loss == pytest.approx(expected.train_loss, rel=2e-4)


@pytest.mark.cluster
def test_shards_of_a_killed_run_are_gone_on_from_by_another_number_of_processes(
    service_url: str, service_folder: Path, tmp_path: Path
) -> None:
    """FSDP2 on two processes: the one that does not lead is killed with -9, then what starts the next two, while it
    does, which leaves no CPU taken; paused, resumed with one process, the losses are one's throughout."""
    workload = SPEC.workload.model_copy(
        update={
            "execution": Execution(parallel="fsdp"),
            "budget": Budget(steps=120, batch_sequences=4),
            "evaluation": Evaluation(every_steps=120, sequences=8),
        }
    )
    adamw = (Candidate(optimizer="adamw", learning_rates=(2e-3,)),)
    spec = SPEC.model_copy(update={"name": "shards", "workload": workload, "candidates": adamw})
    service = psutil.Process()  # this process is the supervisor of the service that its tests share
    with Client(service_url) as client:
        experiment = client.submit(spec).experiment
        (run_id,) = [run.id for run in client.runs(experiment_id=experiment.id)]
        log = service_folder / "runs" / run_id / "logs" / "attempt-1-process-1.log"
        until(lambda: len(client.points(run_id)) > 1, "the first steps are taken")
        os.kill(until(lambda: process_in(log), "its log says which process that is"), signal.SIGKILL)
        until(lambda: client.run(run_id).attempt == 2, "the run is attempted again")
        until(lambda: attempts_of(service, state="ray::RayTrainWorker"), "its processes start")
        for launcher in attempts_of(service):
            launcher.kill()
        client.pause_run(run_id)
        until(lambda: client.run(run_id).status is RunStatus.PAUSED, "the run is paused")
        assert client.resume_run(run_id, processes=1).status is RunStatus.QUEUED
        until(lambda: client.run(run_id).status is RunStatus.SUCCEEDED, "the run has succeeded")
        record, points, attempts = client.run(run_id), client.points(run_id), client.attempts(run_id)
    assert record.result is not None
    assert record.spec is not None
    assert (record.attempt, record.result.processes, record.spec.resources.processes) == (3, 1, 1)
    assert {attempt.outcome for attempt in attempts[:2]} <= {"lost", "broken"}
    single_points = train_alone(spec, tmp_path, service_folder)
    assert [point.step for point in points] == [point.step for point in single_points]
    for actual, expected in zip(points[1:21], single_points[1:21], strict=True):
        # Rounding grows from step to step: measured 2e-5 over 20 steps, and 3e-3 in the last validation loss after 150.
        assert actual.train_loss == pytest.approx(expected.train_loss, rel=2e-4)


def train_alone(spec: ComparisonSpec, folder: Path, service_folder: Path) -> list[Point]:
    """The points of the same run in one process, this one."""
    (planned,) = spec.first_runs()
    reporter = MemoryReporter()
    run_spec = planned.spec.model_copy(update={"resources": Resources()})
    run(run_spec, reporter, Folders(run_folder=folder, dataset_folder=service_folder / "datasets"))
    return reporter.points


def process_in(log: Path) -> int | None:
    """The process whose log that is, once it says so."""
    match = re.search(r"process 1 of 2: begins as (\d+)", log.read_text())
    return None if match is None else int(match[1])
