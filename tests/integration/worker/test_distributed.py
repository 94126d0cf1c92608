"""Two processes that train one run: the losses of one process, and one end for both, however it comes."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories.process_group import exit_codes, started
from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from tests.factories.stepper import executed
from worker import rank_attempt
from worker.distributed.mailbox import StopFile
from worker.distributed.process_group import ProcessGroup
from worker.errors import RankLostError, WorkerError
from worker.records.protocol import CheckpointNotice, Command
from worker.records.result import Point, Result, Verdict
from worker.reporting.reporter import FileReporter, Reporter, read_reports
from worker.run import Folders, run
from worker.spec.run import Resources, RunSpec
from worker.training.step import Stepper


def spec_of(optimizer: str = "adapm", **execution: Any) -> RunSpec:
    """Ten steps of 4 sequences, two for each process."""
    spec = executed(made_spec(optimizer=optimizer, steps=10), "fp32", **execution)
    return spec.model_copy(update={"resources": Resources(processes=2)})


def alone(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"resources": Resources()})


def averaged(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"ema_decay": 0.8})})


@pytest.fixture(scope="module")
def by_two(dataset_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the folder of two undisturbed processes, once for each execution."""

    @cache
    def folder(**execution: Any) -> Path:
        path = tmp_path_factory.mktemp("two")
        assert exit_codes(started(train, path / "ranks", spec_of(**execution), path / "run", dataset_folder)) == [0, 0]
        return path / "run"

    return folder


class Told(FileReporter):
    """Does something when a step is reached, or hears a command from then on."""

    def __init__(self, folder: Path, step: int, action: str) -> None:
        super().__init__(folder)
        self.step, self.what, self.reached = step, action, 0

    def point(self, point: Point) -> None:
        super().point(point)
        self.reached = point.step
        if self.what == "leave" and point.step == self.step:
            (self.folder.parent / "ranks" / "stop").touch()

    def checkpoint(self, notice: CheckpointNotice) -> None:
        super().checkpoint(notice)
        first = self.folder / "first.pt"
        if not first.exists():
            os.link(notice.path, first)  # before newer ones take its place

    def command(self) -> Command:
        return Command.CANCEL if self.what == "cancel" and self.reached >= self.step else Command.CONTINUE


def train(
    group: ProcessGroup, spec: RunSpec, folder: Path, dataset_folder: Path, action: str = "", step: int = 0
) -> None:
    """Train in each process, rank 0 with files for a reporter; its ending is left for the test."""
    folders = Folders(run_folder=folder, dataset_folder=dataset_folder)
    if action == "kill" and not group.is_rank_zero:
        dying_at(step, lambda: os.kill(os.getpid(), signal.SIGKILL))
    if action == "starve" and not group.is_rank_zero:
        dying_at(step, starve)
    assert group.mailbox is not None
    note = StopFile(group.mailbox)
    if not group.is_rank_zero:
        rank_attempt.attend(group.mailbox, group, lambda: run(spec, Reporter(), folders, termination=note, group=group))
    else:
        reporter = Told(folder, step, action)
        try:
            run(spec, reporter, folders, termination=note, checkpoint_seconds=0.0, group=group)
        except WorkerError as error:
            (folder / "error").write_text(f"{type(error).__name__}: {error}")
    rank_attempt._leave(group)


def starve() -> None:
    raise MemoryError("not enough of it")


def dying_at(step: int, die: Any) -> None:
    """Let this process break down in the forward pass of a step."""
    take = Stepper.take

    def mortal(self: Stepper, current_step: int, *arguments: Any, **options: Any) -> Any:
        if current_step == step:
            self.task.model.register_forward_pre_hook(lambda module, inputs: die())
        return take(self, current_step, *arguments, **options)

    Stepper.take = mortal  # type: ignore[assignment, method-assign]


def losses(points: list[Point]) -> list[dict[str, float]]:
    named = [{"train": p.train_loss, "val": p.val_loss, "norm": p.grad_norm} for p in points]
    return [{name: value for name, value in figures.items() if value is not None} for figures in named]


def result_in(folder: Path) -> Result:
    return Result.model_validate_json((folder / "result.json").read_bytes())


@pytest.mark.parametrize("execution", [{}, {"micro_batch_sequences": 1}], ids=["whole", "accumulated"])
def test_two_processes_have_the_losses_of_one(
    execution: dict[str, Any], by_two: Callable[..., Path], dataset_folder: Path, tmp_path: Path
) -> None:
    """Within rounding: sums of two halves have another order. Times are counted for both, tokens once."""
    whole = MemoryReporter()
    folders = Folders(run_folder=tmp_path / "alone", dataset_folder=dataset_folder)
    expected = run(alone(spec_of(**execution)), whole, folders)

    points, result = read_reports(by_two(**execution), Point), result_in(by_two(**execution))
    assert len(points) == len(whole.points)
    for loss, expected_loss in zip(losses(points), losses(whole.points), strict=True):
        assert loss == pytest.approx(expected_loss, rel=2e-4)
    assert (result.processes, result.tokens, result.parameters) == (2, expected.tokens, expected.parameters)
    assert result.micro_batch_sequences == execution.get("micro_batch_sequences", 2)
    assert result.data_hash == expected.data_hash
    assert result.productive_seconds == pytest.approx(2 * sum(p.step_seconds or 0.0 for p in points), rel=1e-6)
    assert result.memory_breakdown is not None
    assert result.memory_breakdown.gradients_bytes >= result.parameter_bytes


def test_a_killed_process_ends_the_attempt_and_the_next_one_gives_the_same_losses(
    by_two: Callable[..., Path], dataset_folder: Path, tmp_path: Path
) -> None:
    """kill -9 of the one that does not lead: the first one says so, and both go on from its checkpoint, bit for bit."""
    spec = spec_of()
    killed = started(train, tmp_path / "b" / "ranks", spec, tmp_path / "run", dataset_folder, "kill", 6)
    assert exit_codes(killed) == [rank_attempt.BROKEN_OFF, -signal.SIGKILL]
    message = (tmp_path / "run" / "error").read_text()
    assert message.startswith(RankLostError.__name__)
    assert "2 processes" in message

    assert exit_codes(started(train, tmp_path / "c" / "ranks", spec, tmp_path / "run", dataset_folder)) == [0, 0]
    assert losses(read_reports(tmp_path / "run", Point)) == losses(read_reports(by_two(), Point))
    assert result_in(tmp_path / "run").resumed_from_step == 6


def test_shards_of_four_processes_are_gone_on_from_by_two_and_by_one(dataset_folder: Path, tmp_path: Path) -> None:
    """FSDP2: losses, norms and validation losses, the averaged weights', are those of one process that was
    never stopped, and two processes write what they have read from four, bit for bit."""

    def sharded(processes: int) -> RunSpec:
        spec = averaged(spec_of(parallel="fsdp", micro_batch_sequences=1, activation_checkpointing=True))
        return spec.model_copy(update={"resources": Resources(processes=processes)})

    def attempt(name: str, source: str | None, processes: int, until: int) -> Path:
        folder = tmp_path / name / "run"
        if source is not None:
            shutil.copytree(tmp_path / source / "run", folder)
            (folder / "first.pt").unlink()
        arguments = (sharded(processes), folder, dataset_folder, "leave", until)
        started_processes = started(train, tmp_path / name / "ranks", *arguments, size=processes)
        assert exit_codes(started_processes) == [0] * processes
        assert (folder / "error").read_text().startswith("TerminatedError: ")
        return folder

    whole = MemoryReporter()
    expected = run(
        alone(averaged(spec_of())), whole, Folders(run_folder=tmp_path / "whole", dataset_folder=dataset_folder)
    )
    four = attempt("four", None, 4, 3)
    two = attempt("two", "four", 2, 6)
    written, first_state = (
        torch.load(path, weights_only=True) for path in (four / "checkpoints" / "step-000000003.pt", two / "first.pt")
    )
    torch.testing.assert_close(first_state["model"], written["model"], rtol=0.0, atol=0.0)
    torch.testing.assert_close(first_state["average"], written["average"], rtol=0.0, atol=0.0)
    torch.testing.assert_close(first_state["optimizer"]["state"], written["optimizer"]["state"], rtol=0.0, atol=0.0)
    assert first_state["optimizer"]["param_groups"] == written["optimizer"]["param_groups"]

    reporter = FileReporter(two)
    result = run(sharded(1), reporter, Folders(run_folder=two, dataset_folder=dataset_folder))
    assert (result.processes, result.resumed_from_step) == (1, 6)
    assert result.optimizer_state_bytes == expected.optimizer_state_bytes
    resumed_losses = losses(read_reports(two, Point))
    assert len(resumed_losses) == len(whole.points) == 11
    for loss, expected_loss in zip(resumed_losses, losses(whole.points), strict=True):
        assert loss == pytest.approx(expected_loss, rel=1e-5)


def test_a_command_reaches_all_processes_before_the_same_step(dataset_folder: Path, tmp_path: Path) -> None:
    """A checkpoint, and both end in order; so they do at the note that stands for SIGTERM, as shown above."""
    processes = started(train, tmp_path / "ranks", spec_of(), tmp_path / "run", dataset_folder, "cancel", 4)

    assert exit_codes(processes) == [0, 0]
    assert len(read_reports(tmp_path / "run", Point)) == 5
    assert (tmp_path / "run" / "error").read_text().startswith("RunStoppedError")
    assert sorted((tmp_path / "run" / "checkpoints").glob("*.pt"))[-1].name == "step-000000004.pt"


def test_memory_that_one_process_lacks_is_the_verdict_of_the_run(dataset_folder: Path, tmp_path: Path) -> None:
    """It leaves word and ends; the first one's exchange fails, and its result says which process it was."""
    processes = started(train, tmp_path / "ranks", spec_of(), tmp_path / "run", dataset_folder, "starve", 3)

    assert exit_codes(processes) == [rank_attempt.BROKEN_OFF, rank_attempt.BROKEN_OFF]
    result = result_in(tmp_path / "run")
    assert (result.verdict, result.steps) == (Verdict.OUT_OF_MEMORY, 3)
    assert "process 1" in result.verdict_reason
