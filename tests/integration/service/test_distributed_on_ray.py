"""A run of two processes through the real service: Ray Train starts them, one is killed, and the losses are one's."""

import os
import re
import signal
from pathlib import Path

import pytest

from api.client.client import Client
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from tests.factories.waiting import until
from worker.reporting.reporter import MemoryReporter
from worker.run import Folders, run
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, RunSpec, Schedule, Workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

SPEC = ComparisonSpec(
    name="two processes",
    workload=Workload(
        model="gpt2-tiny",
        data=DataSpec(sequence_length_tokens=32),
        budget=Budget(steps=120, batch_sequences=4),
        schedule=Schedule(warmup_steps=2),
        evaluation=Evaluation(every_steps=120, sequences=8),
    ),
    candidates=(Candidate(optimizer="adapm", learning_rates=(2e-3,)),),
    seeds=(1,),
    resources=Resources(processes=2),
)


def test_a_killed_process_is_replaced_and_the_losses_are_those_of_one_process(
    service_url: str, service_folder: Path, tmp_path: Path
) -> None:
    """kill -9 of the one that does not lead, in the middle: the attempt is lost or broken, the next one ends well."""
    with Client(service_url) as client:
        experiment = client.submit(SPEC).experiment
        (run_id,) = [each.id for each in client.runs(experiment_id=experiment.id)]
        logs = service_folder / "runs" / run_id / "logs"
        until(lambda: len(client.points(run_id)) > 1, "the first steps are taken")
        other = until(lambda: process_in(logs / "attempt-1-process-1.log"), "its log says which process that is")
        os.kill(other, signal.SIGKILL)
        until(lambda: client.run(run_id).status is RunStatus.SUCCEEDED, "the run has succeeded")
        record, attempts = client.run(run_id), client.attempts(run_id)
        points = client.points(run_id)
    assert record.result is not None
    assert (record.attempt, record.result.processes) == (2, 2)
    assert attempts[0].outcome in ("lost", "broken")
    assert record.device_seconds >= record.result.device_seconds > record.result.productive_seconds > 0
    alone = MemoryReporter()
    datasets = service_folder / "datasets"
    run(spec_of_one(), alone, Folders(run_folder=tmp_path, dataset_folder=datasets))
    assert [point.step for point in points] == [point.step for point in alone.points]
    # Rounding grows from step to step: measured 2e-5 over 20 steps, and 3e-3 in the last validation loss after 150.
    assert record.result.final_val_loss == pytest.approx(alone.points[-1].val_loss, rel=3e-2)
    for found, expected in zip(points[1:21], alone.points[1:21], strict=True):
        assert found.train_loss == pytest.approx(expected.train_loss, rel=2e-4)


def test_shards_of_a_killed_run_are_gone_on_from_by_another_number_of_processes(
    service_url: str, service_folder: Path, tmp_path: Path
) -> None:
    """FSDP2 on two processes, of which one is killed; paused, resumed with one: the losses are one's throughout."""
    workload = SPEC.workload.model_copy(update={"execution": Execution(parallel="fsdp")})
    adamw = (Candidate(optimizer="adamw", learning_rates=(2e-3,)),)
    spec = SPEC.model_copy(update={"name": "shards", "workload": workload, "candidates": adamw})
    with Client(service_url) as client:
        experiment = client.submit(spec).experiment
        (run_id,) = [each.id for each in client.runs(experiment_id=experiment.id)]
        log = service_folder / "runs" / run_id / "logs" / "attempt-1-process-1.log"
        until(lambda: len(client.points(run_id)) > 1, "the first steps are taken")
        os.kill(until(lambda: process_in(log), "its log says which process that is"), signal.SIGKILL)
        client.pause_run(run_id)
        until(lambda: client.run(run_id).status is RunStatus.PAUSED, "the run is paused")
        assert client.resume_run(run_id, processes=1).status is RunStatus.QUEUED
        until(lambda: client.run(run_id).status is RunStatus.SUCCEEDED, "the run has succeeded")
        record, points = client.run(run_id), client.points(run_id)
    assert record.result is not None
    assert record.spec is not None
    assert (record.result.processes, record.spec.resources.processes) == (1, 1)
    alone = MemoryReporter()
    run(spec_of_one(spec), alone, Folders(run_folder=tmp_path, dataset_folder=service_folder / "datasets"))
    assert [point.step for point in points] == [point.step for point in alone.points]
    for found, expected in zip(points[1:21], alone.points[1:21], strict=True):
        assert found.train_loss == pytest.approx(expected.train_loss, rel=2e-4)


def spec_of_one(spec: ComparisonSpec = SPEC) -> RunSpec:
    """The same run for one process."""
    (planned,) = spec.first_runs()
    return planned.spec.model_copy(update={"resources": Resources()})


def process_in(log: Path) -> int | None:
    """The process whose log that is, once it says so."""
    found = re.search(r"process 1 of 2: begins as (\d+)", log.read_text())
    return None if found is None else int(found[1])
