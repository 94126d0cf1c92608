"""The parts of a step's memory."""

from pathlib import Path

import pytest
import torch

from optim.state import state_bytes
from tests.factories.specification import made_spec
from tests.factories.stepper import executed, made_stepper
from tests.twins.live_bytes import LiveBytes
from worker.meters.breakdown import (
    BreakdownMeter,
    ObservedStep,
)
from worker.meters.phases import Phase
from worker.models import parameter_counts
from worker.records.result import MemoryBreakdown
from worker.training.step import Stepper


def measured(stepper: Stepper, steps: int = 2) -> tuple[MemoryBreakdown, ObservedStep]:
    meter = BreakdownMeter(stepper.task.model, stepper.optimizer, stepper.device)
    for step in range(steps):
        stepper.take(step, meter)
    return meter.result(steps, stepper.micro_batch_sequences), meter._observed


def parts(breakdown: MemoryBreakdown) -> int:
    return (
        breakdown.parameters_bytes
        + breakdown.gradients_bytes
        + breakdown.optimizer_state_bytes
        + breakdown.activations_bytes
        + breakdown.other_bytes
    )


@pytest.mark.parametrize("name", ["adamw", "adapm-mini", "came", "mars"])
def test_the_parts_are_exact_and_add_up(name: str, dataset_folder: Path) -> None:
    """Parameters, gradients and state to the byte; after the step nothing is left but what was there before.

    CAME replaces its state in every step; MARS' highest moment is in the update.
    """
    stepper = made_stepper(dataset_folder, made_spec(optimizer=name), micro_batch_sequences=2)

    breakdown, observed = measured(stepper)

    parameter_bytes = parameter_counts(stepper.task.model)[1]
    assert parts(breakdown) == breakdown.peak_bytes
    assert (breakdown.parameters_bytes, breakdown.gradients_bytes) == (parameter_bytes, parameter_bytes)
    assert min(breakdown.activations_bytes, breakdown.other_bytes) >= 0
    if breakdown.phase != Phase.OPTIMIZER:  # state may grow and be replaced within `optimizer.step()`
        assert breakdown.optimizer_state_bytes == state_bytes(stepper.optimizer).total_bytes
    live_bytes = sum(block.size_bytes for block in observed._counted() if block.end_ns is None)
    assert live_bytes <= 64, "the loss, and nothing that would grow from step to step"


def test_the_peak_is_that_of_a_count_of_every_living_tensor(dataset_folder: Path) -> None:
    """The slow twin follows each storage that an operator returns; plain attention has none inside an operator."""
    spec = executed(made_spec(optimizer="sgd"), attention="eager")
    breakdown, observed = measured(made_stepper(dataset_folder, spec))
    stepper = made_stepper(dataset_folder, spec)
    stepper.take(0)
    base_bytes = sum(sum(storages.values()) for storages in observed.before.values())

    with LiveBytes() as twin:
        stepper.take(1)

    assert breakdown.peak_bytes - base_bytes == pytest.approx(twin.peak_bytes, rel=0.01)


def test_activations_grow_with_the_micro_batch_and_nothing_else_does(dataset_folder: Path) -> None:
    """Exactly in proportion: what the forward pass keeps is so much a sequence."""
    first, second = (measured(made_stepper(dataset_folder, micro_batch_sequences=size))[0] for size in (1, 2))

    assert second.parameters_bytes == first.parameters_bytes
    assert second.optimizer_state_bytes == first.optimizer_state_bytes
    assert second.activations_bytes == pytest.approx(2 * first.activations_bytes, rel=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_the_parts_add_up_to_the_allocators_peak(precision: str, dataset_folder: Path) -> None:
    """Within 2 %, and no part is negative."""
    spec = executed(made_spec(), "bf16" if precision == "bf16" else "fp32")
    stepper = made_stepper(dataset_folder, spec, micro_batch_sequences=2, device="cuda")
    meter = BreakdownMeter(stepper.task.model, stepper.optimizer, stepper.device)
    stepper.take(0, meter)
    torch.cuda.reset_peak_memory_stats(stepper.device)

    stepper.take(1, meter)

    breakdown = meter.result(2, 2)
    assert parts(breakdown) == pytest.approx(torch.cuda.max_memory_allocated(stepper.device), rel=0.02)
    assert (
        min(
            breakdown.gradients_bytes,
            breakdown.optimizer_state_bytes,
            breakdown.activations_bytes,
            breakdown.other_bytes,
        )
        >= 0
    )
