"""The cap on tensor memory."""

import psutil
import pytest
import torch

from worker.records.result import MemoryBreakdown
from worker.training.memory_cap import GIB, MemoryCap, OverMemoryCapError, free_host_bytes

CPU = torch.device("cpu")


def breakdown(peak_bytes: int) -> MemoryBreakdown:
    return MemoryBreakdown(
        step=2,
        phase="backward",
        micro_batch_sequences=4,
        peak_bytes=peak_bytes,
        parameters_bytes=peak_bytes,
        gradients_bytes=0,
        optimizer_state_bytes=0,
        activations_bytes=0,
        other_bytes=0,
    )


def test_on_a_cpu_a_measured_peak_is_held_against_the_cap() -> None:
    """To the byte; without a cap nothing is refused."""
    cap = MemoryCap(CPU, 0.5)

    cap.check(breakdown(GIB // 2))
    MemoryCap(CPU, None).check(breakdown(2**50))
    with pytest.raises(OverMemoryCapError, match=r"holds 536870913 bytes of tensors, over the cap of 536870912"):
        cap.check(breakdown(GIB // 2 + 1))


def test_a_trial_may_take_the_cap_or_what_is_free() -> None:
    """On a GPU without a cap the allocator itself says no."""
    assert MemoryCap(CPU, 0.5).trial_limit_bytes() == GIB // 2
    assert 0 < (MemoryCap(CPU, None).trial_limit_bytes() or 0) <= psutil.virtual_memory().total
    assert MemoryCap(torch.device("cuda", 0), None).trial_limit_bytes() is None
    assert free_host_bytes() > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_the_allocator_refuses_what_is_over_the_cap() -> None:
    """Within the cap's stretch only."""
    device = torch.device("cuda", 0)
    with MemoryCap(device, 0.25).apply(), pytest.raises(torch.OutOfMemoryError):
        torch.empty(GIB, dtype=torch.uint8, device=device)
    torch.empty(GIB, dtype=torch.uint8, device=device)
