"""An attempt from hello to its end, in this process, against a real server; and SIGTERM as a wish."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.specification import made_spec
from tests.factories.waiting import until
from tests.fakes.attempt_service import TOKEN, AttemptService, made_assignment
from worker.attempt import execute, failure_kind
from worker.errors import DataError, TerminatedError
from worker.records.protocol import Command, Failure, FailureKind, Stopped
from worker.records.result import Result
from worker.termination import Termination


@pytest.fixture
def service(tmp_path: Path, dataset_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AttemptService]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # the attempt sets it; this brings the old value back
    assignment = made_assignment(tmp_path / "run", dataset_folder, spec=made_spec(steps=30))
    with AttemptService(assignment) as running:
        yield running


def change(service: AttemptService, **fields: object) -> None:
    service.assignment = service.assignment.model_copy(update=fields)


def test_an_attempt_ends_with_its_result_and_hides_the_gpus_from_a_cpu_run(service: AttemptService) -> None:
    """All points and the result arrive."""
    assert execute(service.url, "r1", 1, TOKEN) == "succeeded"

    assert isinstance(service.ending, Result)
    assert sorted(service.points) == list(range(31))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_a_command_is_obeyed_with_a_checkpoint_and_the_next_attempt_goes_on(service: AttemptService) -> None:
    """Paused somewhere before the end, then resumed from exactly there."""
    change(service, spec=made_spec(steps=100))
    service.command = Command.PAUSE
    assert execute(service.url, "r1", 1, TOKEN) == "stopped"
    stopped = service.ending
    assert isinstance(stopped, Stopped)
    assert stopped.command is Command.PAUSE
    assert stopped.step < 100
    assert [notice.step for notice in service.checkpoints] == [stopped.step]

    service.command = Command.CONTINUE
    service.begin_attempt(2)
    change(service, checkpoint=service.checkpoints[-1])
    assert execute(service.url, "r1", 2, TOKEN) == "succeeded"
    assert isinstance(service.ending, Result)
    assert service.ending.resumed_from_step == stopped.step
    assert sorted(service.points) == list(range(101))


def test_sigterm_is_reported_as_an_interruption_behind_a_checkpoint(service: AttemptService) -> None:
    """The process ends in order, and another attempt would go on from there."""
    change(service, spec=made_spec(steps=2_000))

    def interrupt() -> None:
        until(lambda: service.heartbeats and service.heartbeats[-1].step > 0, "it trains")
        os.kill(os.getpid(), signal.SIGTERM)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    assert execute(service.url, "r1", 1, TOKEN) == "terminated"
    interrupter.join()
    assert isinstance(service.ending, Failure)
    assert service.ending.kind is FailureKind.INTERRUPTED
    assert 0 < service.checkpoints[-1].step == max(service.points) < 2_000


def test_a_fault_of_the_run_is_reported_in_words(service: AttemptService, tmp_path: Path) -> None:
    """Damaged data: our own error, with its way out and no traceback; another attempt would meet it again."""
    folder = tmp_path / "damaged" / "python-stdlib-byte"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    change(service, dataset_folder=str(folder.parent))

    assert execute(service.url, "r1", 1, TOKEN) == "failed"

    assert isinstance(service.ending, Failure)
    assert service.ending.kind is FailureKind.PROGRAM
    assert "Delete the folder" in service.ending.message
    assert "Traceback" not in service.ending.message


def test_trouble_with_the_disk_is_infrastructure_and_keeps_its_traceback(
    service: AttemptService, tmp_path: Path
) -> None:
    """The dataset folder is a file."""
    (tmp_path / "a-file").write_text("")
    change(service, dataset_folder=str(tmp_path / "a-file" / "datasets"))

    assert execute(service.url, "r1", 1, TOKEN) == "failed"

    assert isinstance(service.ending, Failure)
    assert service.ending.kind is FailureKind.INFRASTRUCTURE
    assert "NotADirectoryError" in service.ending.message


def test_a_lost_lease_ends_the_attempt_without_a_word(service: AttemptService) -> None:
    """At the hello, and in the middle of training."""
    assert execute(service.url, "r1", 1, "a-stale-token") == "lease_lost"

    change(service, spec=made_spec(steps=2_000))

    def take_away() -> None:
        until(lambda: service.heartbeats, "it trains", longest_pause_seconds=0.01)
        service.begin_attempt(2)

    thief = threading.Thread(target=take_away)
    thief.start()
    assert execute(service.url, "r1", 1, TOKEN) == "lease_lost"
    thief.join()
    assert service.ending is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), FailureKind.STORAGE_FULL),
        (MemoryError(), FailureKind.INFRASTRUCTURE),
        (TerminatedError("told to leave"), FailureKind.INTERRUPTED),
        (ValueError("wrong"), FailureKind.PROGRAM),
        (DataError("no data"), FailureKind.PROGRAM),
    ],
)
def test_what_may_pass_is_told_from_what_would_meet_the_next_attempt_too(error: Exception, kind: FailureKind) -> None:
    """Disk and memory trouble may pass; nobody is to blame for an interruption; the rest is the program's."""
    assert failure_kind(error) is kind


def test_sigterm_is_noted_inside_and_the_former_handler_returns_after() -> None:
    """The process lives on either way, because the former handler here does nothing."""
    calls: list[int] = []
    original = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    try:
        with Termination() as termination:
            assert not termination.is_requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert termination.is_requested
        assert calls == []
        with termination:
            assert termination.is_requested, "a second watch remembers what the first one saw"
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, original)


def test_outside_the_main_thread_it_stays_out_of_the_way() -> None:
    """Python would refuse a handler there; a run in a thread still works."""
    requests: list[bool] = []

    def enter() -> None:
        with Termination() as termination:
            requests.append(termination.is_requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert requests == [False]
