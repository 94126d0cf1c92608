"""Devices, the settings and random states that make losses repeatable, and the cap on tensor memory."""

import random
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from worker.distributed.process_group import ProcessGroup
from worker.errors import DeviceError
from worker.records.result import MemoryBreakdown
from worker.spec.run import Resources
from worker.training.device import (
    GIB,
    MemoryCap,
    OverMemoryCapError,
    choose_device,
    configured_device,
    free_host_bytes,
    is_out_of_memory,
    load_random_state,
    random_state,
    seed_everything,
)


def test_threads_and_determinism_hold_inside_and_return_after() -> None:
    """Whatever happens inside."""
    thread_count = torch.get_num_threads()

    inside: list[object] = []

    def breaking() -> None:
        with configured_device(Resources(cpus=2)) as device:
            inside.extend([device.type, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()])
            raise KeyError

    with pytest.raises(KeyError):
        breaking()

    assert inside == ["cpu", 2, True]

    assert torch.get_num_threads() == thread_count
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is about machines without a GPU")
def test_a_missing_gpu_is_said_with_the_way_out() -> None:
    """One GPU here is too many; so are two, for each of two processes."""
    with pytest.raises(DeviceError, match="Ask for 0"):
        choose_device(Resources(gpus=1))
    with pytest.raises(DeviceError, match=r"resources.gpus = 2, but torch sees no CUDA device"):
        choose_device(Resources(gpus=2), ProcessGroup(rank=1, size=2, local_gpu=1))


@pytest.mark.parametrize("resources", [Resources(gpus=2), Resources(processes=2)])
def test_one_process_does_not_train_the_run_of_two(resources: Resources) -> None:
    """It would take other steps than were asked for."""
    with pytest.raises(DeviceError, match="2 processes, and 1"):
        choose_device(resources)


def test_a_real_failed_allocation_is_recognised_and_other_errors_are_not() -> None:
    """torch reports it as a plain RuntimeError on a CPU: one exabyte is more than any machine has."""
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**60, dtype=torch.uint8)

    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(()).item()]


def test_equal_seeds_give_equal_draws_and_a_saved_state_continues_them(tmp_path: Path) -> None:
    """Also in mid-stream, with a Gaussian half drawn, and through a file loaded with `weights_only`."""
    seed_everything(4)
    first = draws()
    torch.save(random_state(), tmp_path / "state.pt")
    continued = draws()
    seed_everything(4)

    assert draws() == first
    seed_everything(5)
    assert draws() != first
    load_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert draws() == continued


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
    with pytest.raises(OverMemoryCapError, match=r"536870913 bytes.*536870912"):
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
