"""The device of a run and the process-wide settings that make its losses repeatable to the bit."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from worker.distributed.process_group import ALONE, ProcessGroup
from worker.errors import DeviceError
from worker.spec.run import Resources

_FILL: Final = "fill_uninitialized_memory"  # a property that torch gives the module when it is imported


def choose_device(resources: Resources, group: ProcessGroup = ALONE) -> torch.device:
    """The CPU, or this process's one GPU; raises `DeviceError` where that, or the rest of the group, is not there."""
    if (asked := resources.process_count()) != group.size:
        raise DeviceError(
            f"resources asks for {asked} processes, and {group.size} {'was' if group.size == 1 else 'were'} started. "
            "A service starts them all: `adapm-bench up`, then `adapm-bench submit`."
        )
    if resources.gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available() or torch.cuda.device_count() <= group.local_gpu:
        there = f"{torch.cuda.device_count()} CUDA devices" if torch.cuda.is_available() else "no CUDA device"
        raise DeviceError(
            f"resources.gpus = {resources.gpus}, but torch sees {there} here. "
            "Ask for 0 GPUs, or run on a machine that has them."
        )
    return torch.device("cuda", group.local_gpu)


@contextmanager
def configured_device(resources: Resources, group: ProcessGroup = ALONE) -> Iterator[torch.device]:
    """Yield the run's device with its number of threads and deterministic kernels; the old settings return after.

    Determinism costs nothing measurable on a CPU (gpt2-tiny: 84 against 85 ms a step).
    """
    device = choose_device(resources, group)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS refuses to be deterministic
    before = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), _fills_memory())
    torch.set_num_threads(resources.cpus)
    torch.use_deterministic_algorithms(True)
    _fill_memory(False)  # NaN in every fresh tensor helps to debug and costs a write of each
    try:
        yield device
    finally:
        threads, deterministic, fills = before
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        _fill_memory(fills)


def _fills_memory() -> bool:
    return bool(getattr(torch.utils.deterministic, _FILL))


def _fill_memory(on: bool) -> None:
    setattr(torch.utils.deterministic, _FILL, on)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything asked of it; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free_memory() -> None:
    """Give back what nobody refers to any more; torch's allocator keeps blocks of a GPU otherwise."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the GPU or (as torch reports it there) on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
