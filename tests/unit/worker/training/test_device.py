"""Devices and the settings that make losses repeatable."""

import pytest
import torch

from worker.distributed.process_group import ProcessGroup
from worker.errors import DeviceError
from worker.spec.run import Resources
from worker.training.device import choose_device, configured_device, is_out_of_memory


def test_threads_and_determinism_hold_inside_and_return_after() -> None:
    """Whatever happens inside."""
    before = torch.get_num_threads()

    inside: list[object] = []

    def breaking() -> None:
        with configured_device(Resources(cpus=2)) as device:
            inside.extend([device.type, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()])
            raise KeyError

    with pytest.raises(KeyError):
        breaking()

    assert inside == ["cpu", 2, True]

    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is about machines without a GPU")
def test_a_missing_gpu_is_said_with_the_way_out() -> None:
    """One GPU here is too many; so are two, for each of two processes."""
    with pytest.raises(DeviceError, match=r"no CUDA device here\. Ask for 0"):
        choose_device(Resources(gpus=1))
    with pytest.raises(DeviceError, match=r"resources.gpus = 2, but torch sees no CUDA device"):
        choose_device(Resources(gpus=2), ProcessGroup(rank=1, size=2, local_gpu=1))


@pytest.mark.parametrize("resources", [Resources(gpus=2), Resources(processes=2)])
def test_one_process_does_not_train_the_run_of_two(resources: Resources) -> None:
    """It would take other steps than were asked for."""
    with pytest.raises(DeviceError, match=r"asks for 2 processes, and 1 was started\. A service starts them all"):
        choose_device(resources)


def test_a_real_failed_allocation_is_recognised_and_other_errors_are_not() -> None:
    """torch reports it as a plain RuntimeError on a CPU: one exabyte is more than any machine has."""
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**60, dtype=torch.uint8)

    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
