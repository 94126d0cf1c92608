"""The count of a step on tensors without storage equals the measurement of the worker's meter."""

import pytest
import torch

from benchmarks.counted_memory import WAYS, Way, counted_bytes, measured_bytes
from optim.adapm import devices
from worker.footprint.count import footprint
from worker.footprint.passes import StepCounter
from worker.records.footprint import Footprint, MemoryLine, OptimizerFootprint, PassMemory

MOST_ERROR = 0.05
BACKWARD, CHECKPOINTED, STEP = WAYS


@pytest.mark.parametrize(
    ("model", "way", "optimizers"),
    [
        ("gpt2-nano", BACKWARD, ("adapm",)),
        ("llama-tiny", CHECKPOINTED, ("adamw",)),
        ("gpt2-nano", STEP, ("adamw", "adapm")),
    ],
)
def test_the_counted_peak_is_the_measured_one(model: str, way: Way, optimizers: tuple[str, ...]):
    """In the backward pass an optimizer is its state, however it is kept; in the step, what it makes besides."""
    memory = footprint(model, optimizers, precision=way.precision, sequence_length_tokens=way.length)
    for optimizer, counted in counted_bytes(memory, way).items():
        measured, phase = measured_bytes(model, optimizer, way)
        assert counted == pytest.approx(measured, rel=MOST_ERROR), (optimizer, phase)


def test_few_layers_tell_the_passes_of_all(monkeypatch: pytest.MonkeyPatch):
    """`gpt2-mini` has six."""
    whole = StepCounter("gpt2-mini").passes("fp32", 64)
    monkeypatch.setattr("worker.footprint.passes._WHOLE_LAYERS", 3)
    assert StepCounter("gpt2-mini").passes("fp32", 64) == whole


def test_nothing_without_storage_stays_in_the_process():
    footprint("gpt2-nano", ["adapm"], precision="fp32", sequence_length_tokens=8)
    assert not hasattr(devices.constant(0.123, torch.float32, torch.device("cpu")), "fake_mode")


def one(optimizer: str, state: int, step: int | None) -> OptimizerFootprint:
    return OptimizerFootprint(optimizer=optimizer, title=optimizer, options={}, state_bytes=state, transient_bytes=step)


GIB = 2**30


def test_the_largest_micro_batch_is_the_last_that_fits():
    lines = (
        MemoryLine(fixed_bytes=3 * GIB, bytes_per_sequence=GIB // 4),
        MemoryLine(fixed_bytes=GIB, bytes_per_sequence=GIB),
    )
    counted = Footprint(
        model="gpt2-tiny",
        parameters=GIB // 4,
        parameter_bytes=GIB,
        gradient_bytes=GIB,
        optimizers=(one("small", GIB, 0), one("slow", GIB, 9 * GIB), one("large", 7 * GIB, 0), one("unknown", 0, None)),
        baseline_bytes=None,
        passes=(PassMemory(checkpointing=False, lines=lines),),
    )
    fits = {fit.optimizer: fit for fit in counted.fit(10.0, 4).fits}
    assert {name: (fit.peak_bytes / GIB, fit.most_sequences, fit.limit) for name, fit in fits.items()} == {
        "small": (7, 7, "activations"),
        "slow": (12, 0, "step"),
        "large": (13, 0, "state"),
    }
    assert fits["small"].activation_bytes == 4 * GIB
    (small,) = (fit for fit in counted.fit(9.999, 4).fits if fit.optimizer == "small")
    assert small.most_sequences == 6
