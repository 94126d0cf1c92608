"""A run from spec to result, in this process."""

import logging
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from tests.factories.reporters import MemoryReporter, StoppingReporter, losses, reported
from tests.factories.specification import made_spec
from worker.data.preparation import ensure_dataset, prepare
from worker.data.weights import find_weights
from worker.errors import CheckpointError, OptimizerError, RunStoppedError, TerminatedError
from worker.models import build_model
from worker.records.protocol import Command
from worker.records.result import Result, Verdict
from worker.run import Folders, run
from worker.spec.run import RunSpec
from worker.tasks.registry import TASKS
from worker.tasks.task import Task
from worker.training.schedule import lr_factor


@pytest.fixture(scope="module")
def whole(dataset_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryReporter, Result]:
    """A run that nothing stopped."""
    return reported(made_spec(), Folders(run_folder=tmp_path_factory.mktemp("whole"), dataset_folder=dataset_folder))


def test_a_run_reports_every_step_and_its_result_is_complete_and_round_trips(
    whole: tuple[MemoryReporter, Result], dataset_folder: Path
) -> None:
    """Points from 0 to the last step, evaluation at the start, every 5 steps and at the end."""
    spec = made_spec()
    reporter, result = whole
    points = reporter.points
    assert [point.step for point in points] == list(range(13))
    assert [point.step for point in points if point.val_loss is not None] == [0, 5, 10, 12]
    assert [point.tokens for point in points] == [step * 128 for step in range(13)]
    schedule = spec.workload.schedule
    assert [point.lr for point in points[1:]] == [2e-3 * lr_factor(step, 12, schedule) for step in range(12)]
    assert reporter.result == result
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert result.verdict is Verdict.CONVERGED
    assert (result.steps, result.tokens, result.resumed_from_step) == (12, 1536, 0)
    assert (result.initial_val_loss, result.final_val_loss) == (points[0].val_loss, points[12].val_loss)
    assert result.final_train_loss == points[12].train_loss
    seconds = [point.step_seconds or 0.0 for point in points[1:]]
    assert result.tokens_per_second == pytest.approx(10 * 128 / sum(seconds[2:])), "the first two are warm-up"
    assert result.productive_seconds == pytest.approx(sum(seconds))
    assert min(seconds) <= (result.step_seconds_median or 0.0) <= max(seconds)
    for point in points[1:]:
        parts = [point.data_seconds, point.forward_seconds, point.backward_seconds, point.optimizer_seconds]
        assert min(part or 0.0 for part in parts) > 0.0
        assert sum(part or 0.0 for part in parts) < (point.step_seconds or 0.0)
    assert sum(seconds) < result.device_seconds
    assert result.spec_hash == spec.content_hash()
    assert result.data_hash == ensure_dataset("python-stdlib", "byte", dataset_folder).manifest.data_hash
    assert (result.environment.threads, result.environment.device) == (1, "cpu")


def test_a_repeated_run_gives_the_same_losses_to_the_bit_and_another_seed_others(
    folders: Folders, tmp_path: Path
) -> None:
    """Whatever the process did before."""
    first, repeat, other_seed = MemoryReporter(), MemoryReporter(), MemoryReporter()
    run(made_spec(steps=5), first, folders)
    torch.rand(7)
    for reporter, seed in ((repeat, 1), (other_seed, 2)):
        fresh = Folders(run_folder=tmp_path / f"seed{seed}", dataset_folder=folders.dataset_folder)
        run(made_spec(steps=5, seed=seed), reporter, fresh)

    assert losses(repeat.points) == losses(first.points)
    assert other_seed.points[0].val_loss != first.points[0].val_loss


def test_a_learning_rate_far_too_high_is_a_result_with_its_curve(folders: Folders) -> None:
    """`diverged`, a reason in words, the points up to where it happened, and a valid record."""
    reporter, result = reported(made_spec(lr=1e3), folders)

    assert result.verdict is Verdict.DIVERGED
    assert reporter.result == Result.model_validate_json(result.model_dump_json())
    assert [point.step for point in reporter.points] == list(range(result.steps + 1))
    assert len(reporter.points) >= 2
    assert result.initial_val_loss is not None


class _PoisonedTask:
    """Real training, but at one step the loss or its gradient is not a number."""

    def __init__(self, task: Task[Any], step: int, kind: str) -> None:
        self.task, self.step, self.kind, self.drawn = task, step, kind, -1
        self.model, self.data_hash = task.model, task.data_hash
        self.tokens_per_step, self.batch_sequences = task.tokens_per_step, task.batch_sequences

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[Any]:
        self.drawn = step
        return self.task.draw(step, micro_batch_sequences)

    def training_loss(self, micro_batch: Any) -> torch.Tensor:
        loss = self.task.training_loss(micro_batch)
        if self.drawn != self.step:
            return loss
        # The square root's slope at 0 is infinite: a finite loss with a gradient norm that is not a number.
        return loss * math.nan if self.kind == "loss" else loss + (loss - loss).sqrt()

    def validation_loss(self, micro_batch_sequences: int) -> float:
        return self.task.validation_loss(micro_batch_sequences)


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_no_number_stops_the_run_before_the_step(
    kind: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps are done and kept; the fourth is not taken."""
    real = TASKS["pretrain"]
    poisoned = replace(real, task=lambda *arguments: _PoisonedTask(real.task(*arguments), 3, kind))
    monkeypatch.setitem(TASKS, "pretrain", poisoned)
    reporter, result = reported(made_spec(), folders)

    assert (result.verdict, result.steps, result.final_val_loss) == (Verdict.DIVERGED, 3, None)
    assert "step 4" in result.verdict_reason
    assert [point.step for point in reporter.points] == [0, 1, 2, 3]


def test_running_out_of_memory_is_a_result(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real allocation fails inside the third step; what was reached is in the record."""

    class Hungry(_PoisonedTask):
        def training_loss(self, micro_batch: Any) -> torch.Tensor:
            if self.drawn == self.step:
                torch.empty(2**60, dtype=torch.uint8)
            return self.task.training_loss(micro_batch)

    real = TASKS["pretrain"]
    hungry = replace(real, task=lambda *arguments: Hungry(real.task(*arguments), 2, ""))
    monkeypatch.setitem(TASKS, "pretrain", hungry)
    reporter, result = reported(made_spec(), folders)

    assert (result.verdict, result.steps, result.final_val_loss) == (Verdict.OUT_OF_MEMORY, 2, None)
    assert "step 2" in result.verdict_reason
    assert result.optimizer_state_bytes > 2 * result.parameters * 4
    assert reporter.result == result


@pytest.mark.parametrize("step", [0, 6])
def test_an_early_stop_is_a_result_with_all_that_was_measured(step: int, folders: Folders) -> None:
    """It has no final loss: only a run of the whole budget has."""
    reporter = StoppingReporter(step, Command.STOP_EARLY)

    result = run(made_spec(), reporter, folders)

    assert (result.verdict, result.steps, result.final_val_loss) == (Verdict.STOPPED_EARLY, step, None)
    assert f"step {step} of 12" in result.verdict_reason
    assert result.optimizer_state_bytes > 0 or step == 0
    assert result.peak_memory.host_rss_bytes > 0
    assert reporter.result == result
    assert [point.step for point in reporter.points] == list(range(step + 1))


def test_an_early_stop_that_comes_with_the_last_step_changes_nothing(folders: Folders) -> None:
    result = run(made_spec(), StoppingReporter(12, Command.STOP_EARLY), folders)
    assert (result.verdict, result.steps) == (Verdict.CONVERGED, 12)


@pytest.mark.parametrize(("command", "step"), [(Command.PAUSE, 6), (Command.CANCEL, 6), (None, 6), (Command.PAUSE, 0)])
def test_a_command_or_sigterm_stops_at_the_next_step_and_a_later_attempt_repeats_nothing(
    command: Command | None, step: int, folders: Folders, whole: tuple[MemoryReporter, Result]
) -> None:
    """The checkpoint is of that very step, and the two halves are the uninterrupted run to the bit."""
    reporter, expected = whole
    first = StoppingReporter(step, command)

    with pytest.raises(TerminatedError if command is None else RunStoppedError) as stop:
        run(made_spec(), first, folders)
    if isinstance(stop.value, RunStoppedError):
        assert (stop.value.stopped.command, stop.value.stopped.step) == (command, step)
    assert first.checkpoints[-1].step == step
    assert first.result is None

    second = MemoryReporter()
    result = run(made_spec(), second, folders, first.checkpoints[-1])

    assert losses(first.points + second.points) == losses(reporter.points)
    assert result.resumed_from_step == step
    assert (result.final_train_loss, result.final_val_loss) == (expected.final_train_loss, expected.final_val_loss)
    assert (result.initial_val_loss, result.tokens) == (expected.initial_val_loss, expected.tokens)


class FullDiskReporter(MemoryReporter):
    """Cannot persist: a periodic checkpoint fails the way it does on a full disk."""

    def persist(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_costs_checkpoints_but_not_the_run(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on, with a warning each time."""
    with caplog.at_level(logging.WARNING):
        result = run(made_spec(steps=3), FullDiskReporter(), folders, checkpoint_seconds=0.0)

    assert result.steps == 3
    assert caplog.text.count("No space left on device") == 3


@pytest.mark.parametrize("command", [Command.PAUSE, None])
def test_a_full_disk_keeps_nobody_from_obeying(command: Command | None, folders: Folders) -> None:
    """Without a checkpoint; what is lost is said where somebody reads it."""

    class Full(StoppingReporter, FullDiskReporter):
        pass

    with pytest.raises(TerminatedError if command is None else RunStoppedError) as stop:
        run(made_spec(), Full(6, command), folders)
    if command is None:
        assert "no checkpoint" in str(stop.value)


def test_a_damaged_checkpoint_that_is_passed_over_is_told(folders: Folders) -> None:
    first = StoppingReporter(6, Command.PAUSE)
    with pytest.raises(RunStoppedError):
        run(made_spec(), first, folders, checkpoint_seconds=0.0)
    Path(first.checkpoints[-1].path).write_bytes(b"nothing")
    second = MemoryReporter()
    result = run(made_spec(), second, folders, first.checkpoints[-1])
    assert result.resumed_from_step == 5
    (note,) = second.notes
    assert "from step 5" in note and "step 6" in note and "damaged" in note
    assert first.notes == []


def test_the_folder_of_another_spec_is_refused(folders: Folders) -> None:
    """Instead of going on from foreign weights."""
    run(made_spec(steps=4), MemoryReporter(), folders, checkpoint_seconds=0.0)

    with pytest.raises(CheckpointError, match="another spec"):
        run(made_spec(steps=3), MemoryReporter(), folders)


def stop_at_3(spec: RunSpec, folders: Folders) -> None:
    """The first of two attempts."""
    with pytest.raises(RunStoppedError):
        run(spec, StoppingReporter(3, Command.PAUSE), folders)


def test_data_that_were_prepared_anew_between_two_attempts_are_refused(tmp_path: Path) -> None:
    """The result would be of neither; the message names both."""
    old_hash = prepare_made_dataset(tmp_path).data_hash
    folders = Folders(run_folder=tmp_path / "run", dataset_folder=tmp_path)
    stop_at_3(made_spec(), folders)
    shutil.rmtree(tmp_path / "python-stdlib-byte")
    new_hash = prepare(MadeSource(count=290), made_recipe(), tmp_path / "python-stdlib-byte").data_hash

    with pytest.raises(CheckpointError, match=f"data: {old_hash}, now {new_hash}"):
        run(made_spec(), MemoryReporter(), folders)


def test_initial_weights_that_were_replaced_between_two_attempts_are_refused(tmp_path: Path) -> None:
    """As for data."""
    prepare_made_dataset(tmp_path)
    fields = made_spec().model_dump()
    fields["workload"]["initial_weights"] = "own/mine"
    spec, folders = RunSpec.model_validate(fields), Folders(run_folder=tmp_path / "run", dataset_folder=tmp_path)
    hashes = []
    for seed in (7, 8):
        build_model("gpt2-tiny", seed).save_pretrained(tmp_path / "weights" / "mine")
        hashes.append(find_weights("own/mine", tmp_path).sha256)
        if seed == 7:
            stop_at_3(spec, folders)

    with pytest.raises(CheckpointError, match=f"initial weights: {hashes[0]}, now {hashes[1]}"):
        run(spec, MemoryReporter(), folders)


def test_a_rule_that_fits_no_block_is_said_to_be_so(folders: Folders) -> None:
    """The run ends in words, and no other attempt is worth its while."""
    spec = made_spec(optimizer="adapm", steps=3)
    ruled = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"rules": ("*.nothing=full",)})})
    with pytest.raises(OptimizerError, match=r"\*\.nothing"):
        run(ruled, MemoryReporter(), folders)
