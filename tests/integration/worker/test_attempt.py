"""Worker and service with real processes between them: a worker killed at any moment costs nothing but time."""

import signal
from pathlib import Path

from tests.factories.dataset import prepare_made_dataset
from tests.factories.fork_server import fork_server
from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from tests.factories.waiting import until
from tests.fakes.attempt_service import TOKEN, AttemptService, made_assignment
from worker.attempt import execute
from worker.meters.clock import DeviceClock
from worker.records.protocol import Failure, FailureKind
from worker.records.result import Result
from worker.reporting.client import ServiceClient
from worker.reporting.http import HttpReporter
from worker.run import Folders, run

SPEC = made_spec(steps=90, optimizer="adapm")


def attempt_with_many_checkpoints(url: str, attempt: int) -> None:
    """Execute the attempt like `execute`, with a checkpoint every 0.2 s instead of every 10."""
    clock = DeviceClock()
    with ServiceClient(url, "r1", attempt, TOKEN) as service:
        assignment = service.hello()
        folders = Folders(run_folder=Path(assignment.run_folder), dataset_folder=Path(assignment.dataset_folder))
        with HttpReporter(
            service,
            attempt=attempt,
            run_folder=folders.run_folder,
            heartbeat_seconds=assignment.heartbeat_seconds,
            clock=clock,
            flush_seconds=0.1,
        ) as reporter:
            run(assignment.spec, reporter, folders, assignment.checkpoint, clock=clock, checkpoint_seconds=0.2)


def test_a_killed_and_then_terminated_worker_is_taken_over_to_the_same_curve(tmp_path: Path) -> None:
    """kill -9 after a checkpoint, with the service away at that moment; then SIGTERM; then a quiet end."""
    prepare_made_dataset(tmp_path / "datasets")
    whole = MemoryReporter()
    run(SPEC, whole, Folders(run_folder=tmp_path / "whole", dataset_folder=tmp_path / "datasets"))
    assignment = made_assignment(tmp_path / "run", tmp_path / "datasets", spec=SPEC, heartbeat_seconds=0.1)
    processes = fork_server()

    with AttemptService(assignment) as service:
        first = processes.Process(target=attempt_with_many_checkpoints, args=(service.url, 1))
        first.start()
        until(lambda: service.checkpoints, "a checkpoint is written")
        service.status = 503
        until(lambda: service.refused > 1, "reports were refused")
        assert first.pid is not None
        first.kill()
        first.join()
        assert first.exitcode == -signal.SIGKILL
        service.status = None

        service.begin_attempt(2)
        service.heartbeats.clear()
        second = processes.Process(target=execute, args=(service.url, "r1", 2, TOKEN))
        second.start()
        until(
            lambda: service.heartbeats and service.heartbeats[-1].step >= 30,
            "the second attempt trains",
            longest_pause_seconds=0.005,
        )
        second.terminate()
        second.join()
        assert second.exitcode == 0
        assert isinstance(service.ending, Failure)
        assert service.ending.kind is FailureKind.INTERRUPTED
        stopped_at = service.checkpoints[-1].step

        service.begin_attempt(3)
        third = processes.Process(target=execute, args=(service.url, "r1", 3, TOKEN))
        third.start()
        third.join()

    assert isinstance(service.ending, Result)
    assert service.ending.resumed_from_step == stopped_at
    curve = [(p.step, p.train_loss, p.val_loss, p.grad_norm) for _, p in sorted(service.points.items())]
    assert curve == [(p.step, p.train_loss, p.val_loss, p.grad_norm) for p in whole.points]
