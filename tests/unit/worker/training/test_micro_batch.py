"""The largest micro-batch."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories.reporters import MemoryReporter, reported
from tests.factories.specification import made_spec
from tests.factories.stepper import executed, made_stepper
from worker.errors import OutOfMemoryError
from worker.meters.breakdown import BreakdownMeter
from worker.records.result import Result, Verdict
from worker.run import Folders, run
from worker.spec.run import Budget, DataSpec, RunSpec
from worker.tasks.registry import TASKS
from worker.training.device import GIB, MemoryCap, random_state, seed_everything
from worker.training.micro_batch import TrialSteps, candidates, largest_fitting_size, next_smaller


def test_candidates_cut_the_batch_as_evenly_as_can_be() -> None:
    """Into 1, 2, 3, … micro-batches; the next smaller one needs one more."""
    assert candidates(12) == (1, 2, 3, 4, 6, 12)
    assert candidates(7) == (1, 2, 3, 4, 7)
    assert (next_smaller(12, 6), next_smaller(12, 1), next_smaller(7, 7)) == (4, None, 4)


def linear_trial(fits: int, tried: list[int]) -> Callable[[int], int]:
    def trial(size: int) -> int:
        tried.append(size)
        if size > fits:
            torch.empty(2**60, dtype=torch.uint8)  # a real out-of-memory error
        return 1000 + 10 * size

    return trial


@pytest.mark.parametrize("fits", [1, 3, 17, 64])
@pytest.mark.parametrize("limited", [False, True])
def test_the_largest_size_that_fits_is_found_in_a_few_trials(fits: int, limited: bool) -> None:
    """By doubling and bisection; with a limit, sizes that two smaller ones rule out are not even tried."""
    tried: list[int] = []
    sizes = candidates(64)

    largest = largest_fitting_size(sizes, linear_trial(fits, tried), 1000 + 10 * fits if limited else None)

    assert largest == max(size for size in sizes if size <= fits)
    assert len(tried) == len(set(tried)) <= 8


def test_the_whole_batch_is_tried_although_its_half_fails() -> None:
    """It has no gradients in its forward pass, which a large model with a small batch feels."""

    def trial(size: int) -> int:
        if 1 < size < 64:
            torch.empty(2**60, dtype=torch.uint8)
        return 1000

    assert largest_fitting_size(candidates(64), trial, None) == 64


def test_another_error_of_a_trial_is_not_taken_for_memory() -> None:
    """It is raised as it is."""

    def broken(size: int) -> int:
        raise RuntimeError(f"shape {size}")

    with pytest.raises(RuntimeError, match="shape 1"):
        largest_fitting_size(candidates(8), broken, None)


def long_spec() -> RunSpec:
    """Batches of 8 × 128 tokens, whose activations outweigh the gradients."""
    spec = made_spec(steps=4, model="gpt2-nano")
    workload = spec.workload.model_copy(
        update={"data": DataSpec(sequence_length_tokens=128), "budget": Budget(steps=4, batch_sequences=8)}
    )
    return spec.model_copy(update={"workload": workload})


def peak_bytes(dataset_folder: Path, size: int) -> int:
    stepper = made_stepper(dataset_folder, long_spec(), size)
    meter = BreakdownMeter(stepper.task.model, stepper.optimizer, stepper.device)
    for step in range(2):
        stepper.take(step, meter, most_micro_batches=2)
    return meter.result(2, size).peak_bytes


def test_trials_take_real_steps_under_an_exact_cap_and_leave_random_states_alone(dataset_folder: Path) -> None:
    """A cap of just what two sequences need finds two; one byte less finds one."""
    needed = peak_bytes(dataset_folder, 2)
    seed_everything(3)
    state, draws = str(random_state()), random.random()
    seed_everything(3)

    for cap_bytes, expected in ((needed, 2), (needed - 1, 1)):
        rehearsal = TrialSteps(
            lambda: made_stepper(dataset_folder, long_spec()), MemoryCap(torch.device("cpu"), cap_bytes / GIB)
        )
        assert rehearsal.largest_micro_batch(8) == expected

    assert str(random_state()) == state
    assert random.random() == draws


def result_of(folders: Folders, path: Path, **fields: Any) -> tuple[Result, list[float | None]]:
    run_folders = Folders(run_folder=path, dataset_folder=folders.dataset_folder)
    reporter, result = reported(executed(long_spec(), **fields), run_folders)
    return result, [point.train_loss for point in reporter.points]


def test_auto_trains_as_if_its_finding_had_been_asked_for(folders: Folders, tmp_path: Path) -> None:
    """To the bit: the trials touched nothing; the finding, its peak under the cap, is in the result."""
    cap_gib = (peak_bytes(folders.dataset_folder, 2) + 1000) / GIB
    auto, losses = result_of(folders, tmp_path / "auto", micro_batch_sequences="auto", memory_cap_gib=cap_gib)
    fixed, expected = result_of(folders, tmp_path / "fixed", micro_batch_sequences=2)

    assert losses == expected
    assert (auto.micro_batch_sequences, auto.verdict) == (2, Verdict.CONVERGED)
    assert auto.memory_breakdown is not None
    assert auto.memory_breakdown.peak_bytes <= cap_gib * GIB
    assert fixed.micro_batch_sequences == 2


def test_a_run_over_its_cap_is_out_of_memory_with_the_peak_reached(folders: Folders, tmp_path: Path) -> None:
    """The whole batch at once is too much; so is any micro-batch under a cap below the weights."""
    cap_gib = peak_bytes(folders.dataset_folder, 2) / GIB
    result, _ = result_of(folders, tmp_path / "whole", memory_cap_gib=cap_gib)

    assert result.verdict is Verdict.OUT_OF_MEMORY
    assert result.memory_breakdown is not None
    assert f"{result.memory_breakdown.peak_bytes} bytes" in result.verdict_reason
    nothing, losses = result_of(folders, tmp_path / "nothing", micro_batch_sequences="auto", memory_cap_gib=0.001)
    assert (nothing.verdict, nothing.steps, losses) == (Verdict.OUT_OF_MEMORY, 0, [])
    assert nothing.parameters == result.parameters
    assert "micro-batch of 1" in nothing.verdict_reason


def test_half_the_micro_batch_is_asked_for_where_the_caller_makes_another_attempt(
    folders: Folders, tmp_path: Path
) -> None:
    """Not below one sequence, and not where the specification takes the first refusal for the result; what a smaller
    attempt trains is to the bit what that size trains when it is asked for."""
    cap_gib = (peak_bytes(folders.dataset_folder, 2) + 1000) / GIB
    spec = executed(long_spec(), memory_cap_gib=cap_gib)
    reporter = MemoryReporter()
    with pytest.raises(OutOfMemoryError, match="of 8 sequences after step 1"):
        run(spec, reporter, folders, retried_smaller=True)

    smaller_one, losses = MemoryReporter(), result_of(folders, tmp_path / "asked", micro_batch_sequences=2)[1]
    result = run(spec, smaller_one, folders, micro_batch_sequences=2, retried_smaller=True)
    assert (result.micro_batch_sequences, result.verdict) == (2, Verdict.CONVERGED)
    assert result.spec_hash == spec.content_hash(), "the same experiment"
    assert [point.train_loss for point in smaller_one.points] == losses

    unwilling = executed(spec, memory_cap_gib=cap_gib, retry_out_of_memory=False)
    for refused, size in ((executed(spec, memory_cap_gib=0.001), 1), (unwilling, 8)):
        run_folders = Folders(run_folder=tmp_path / refused.content_hash(), dataset_folder=folders.dataset_folder)
        ended = run(refused, MemoryReporter(), run_folders, micro_batch_sequences=size, retried_smaller=True)
        assert (ended.verdict, ended.micro_batch_sequences) == (Verdict.OUT_OF_MEMORY, size)


def test_auto_steps_down_where_a_later_step_needs_more(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real failed allocation in the third step of the training: the step is taken again, in smaller pieces."""
    from worker.tasks.next_token import Pretraining, TokenMicroBatch

    class Growing(Pretraining):
        steps = 0

        def draw(self, step: int, micro_batch_sequences: int) -> list[TokenMicroBatch]:
            self.steps = step
            return list(super().draw(step, micro_batch_sequences))

        def training_loss(self, micro_batch: TokenMicroBatch) -> torch.Tensor:
            if self.steps == 2 and len(micro_batch.inputs) > 4:
                torch.empty(2**60, dtype=torch.uint8)
            return super().training_loss(micro_batch)

    monkeypatch.setitem(TASKS, "pretrain", replace(TASKS["pretrain"], task=Growing))
    result, losses = result_of(folders, folders.run_folder, micro_batch_sequences="auto")

    assert (result.verdict, result.micro_batch_sequences) == (Verdict.CONVERGED, 4)
    assert len(losses) == 5
    assert result.memory_breakdown is not None
    assert result.memory_breakdown.micro_batch_sequences == 4
