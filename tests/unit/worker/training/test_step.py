"""An optimizer step."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories.specification import made_spec
from tests.factories.stepper import executed, made_stepper
from worker.meters.breakdown import BreakdownMeter
from worker.meters.phases import PhaseClock
from worker.spec.run import RunSpec
from worker.training.progress import TIMES


def losses(dataset_folder: Path, micro_batch_sequences: int) -> list[tuple[float, float]]:
    stepper = made_stepper(dataset_folder, micro_batch_sequences=micro_batch_sequences)
    records = [stepper.take(step) for step in range(4)]
    return [(record.loss, record.grad_norm) for record in records]


@pytest.mark.parametrize("micro_batch_sequences", [1, 3])
def test_accumulated_steps_are_those_of_the_whole_batch(micro_batch_sequences: int, dataset_folder: Path) -> None:
    """Loss and gradient norm within rounding over four steps, also where 3 does not divide the batch of 4."""
    expected = losses(dataset_folder, 4)

    for figures, whole in zip(losses(dataset_folder, micro_batch_sequences), expected, strict=True):
        assert figures == pytest.approx(whole, rel=2e-4)


@pytest.mark.parametrize("most_micro_batches", [None, 2])
def test_what_is_recorded_of_an_uneven_cut_is_a_full_micro_batch(
    most_micro_batches: int | None, dataset_folder: Path
) -> None:
    """Four sequences as one and three, in trials too: the memory that is found is that of three."""
    stepper = made_stepper(dataset_folder, long_spec(), micro_batch_sequences=3)
    meter = BreakdownMeter(stepper.task.model, stepper.optimizer, stepper.device)
    shapes = []
    head: torch.nn.Module = stepper.task.model.get_submodule("lm_head")
    head.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    stepper.take(0, meter, most_micro_batches=most_micro_batches)

    assert [shape[0] for shape in shapes] == [1, 3]
    logits_bytes = 4 * shapes[-1].numel()
    assert meter.result(1, 3).activations_bytes > 10 * logits_bytes


def long_spec() -> RunSpec:
    """Sequences so long that a step holds the most in its backward pass, not in its update."""
    spec = made_spec()
    data = spec.workload.data.model_copy(update={"sequence_length_tokens": 256})
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"data": data})})


def test_bf16_is_autocast_and_parameters_and_gradients_stay_in_fp32(dataset_folder: Path) -> None:
    """Matrix products really are in bf16; the loss is close to fp32's and not equal to it."""
    stepper = made_stepper(dataset_folder, executed(made_spec(), "bf16"), micro_batch_sequences=2)
    dtypes = []
    head: torch.nn.Module = stepper.task.model.get_submodule("lm_head")
    head.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    gradients = []
    for parameter in stepper.task.model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: gradients.append(p.grad.dtype))

    half, full = stepper.take(0), made_stepper(dataset_folder).take(0)

    assert dtypes == [torch.bfloat16] * 2
    assert {parameter.dtype for parameter in stepper.task.model.parameters()} == set(gradients) == {torch.float32}
    assert half.loss != full.loss
    assert half.loss == pytest.approx(full.loss, rel=1e-2)


def test_the_validation_loss_is_taken_in_the_runs_precision(dataset_folder: Path) -> None:
    """In bf16 it is close to fp32's and not equal."""
    half, full = (made_stepper(dataset_folder, executed(made_spec(), p)).validation_loss() for p in ("bf16", "fp32"))

    assert half != full
    assert half == pytest.approx(full, rel=1e-2)


def test_a_loss_that_is_no_number_leaves_the_weights_alone(dataset_folder: Path) -> None:
    """And no gradients behind."""
    stepper = made_stepper(dataset_folder, micro_batch_sequences=2)
    real = stepper.task.training_loss
    stepper.task.training_loss = lambda micro_batch: real(micro_batch) * math.nan  # type: ignore[method-assign]
    originals = [parameter.detach().clone() for parameter in stepper.task.model.parameters()]

    record = stepper.take(0)

    assert (record.is_finite(), stepper.updating) == (False, False)
    for parameter, old in zip(stepper.task.model.parameters(), originals, strict=True):
        assert torch.equal(parameter, old)
        assert parameter.grad is None


def test_an_error_leaves_no_gradients(dataset_folder: Path) -> None:
    """The second micro-batch fails when the first one's gradients are there."""
    stepper = made_stepper(dataset_folder, micro_batch_sequences=2)
    real = stepper.task.draw

    def draw(step: int, micro_batch_sequences: int) -> Sequence[Any]:
        first, _ = real(step, micro_batch_sequences)
        return [first, None]

    stepper.task.draw = draw  # type: ignore[method-assign]
    with pytest.raises(AttributeError):
        stepper.take(0)

    assert all(parameter.grad is None for parameter in stepper.task.model.parameters())
    assert not stepper.updating


def test_the_phases_are_parts_of_the_step(dataset_folder: Path) -> None:
    """Each takes time, together no more than the whole; micro-batches add up."""
    seconds = made_stepper(dataset_folder, micro_batch_sequences=1).take(0).seconds

    whole, *parts = (seconds[name] for name in TIMES)
    assert min(parts) > 0
    assert sum(parts) <= whole
    assert PhaseClock(torch.device("cpu")).seconds()["forward_seconds"] == 0
