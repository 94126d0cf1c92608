"""The device of a run: the process-wide settings and random states that make its losses repeatable to the bit, and how
much of its memory the run may use.

A run owns its process: it seeds the global generators and does not restore them. Batches and initial weights do not
depend on them (they are functions of the seed and step alone), but an optimizer or a model may. All ranks of a run
have the same states, so that what an optimizer draws is the same in each; a checkpoint holds those of the first.
"""

import gc
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import torch

from worker.distributed.process_group import ALONE, ProcessGroup
from worker.errors import DeviceError
from worker.records.result import MemoryBreakdown
from worker.spec.run import Resources
from worker.words import pluralize


def choose_device(resources: Resources, group: ProcessGroup = ALONE) -> torch.device:
    """Return the CPU, or this process's one GPU; raises `DeviceError` if that, or the rest of the group, is not
    there."""
    if (count := resources.process_count()) != group.size:
        raise DeviceError(
            f"resources asks for {count} processes, and {group.size} {'was' if group.size == 1 else 'were'} started. "
            "A service starts them all: `adapm-bench up`, then `adapm-bench submit`."
        )
    if resources.gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available() or torch.cuda.device_count() <= group.local_gpu:
        devices = f"{torch.cuda.device_count()} CUDA devices" if torch.cuda.is_available() else "no CUDA device"
        raise DeviceError(
            f"resources.gpus = {resources.gpus}, but torch sees {devices} here. "
            "Ask for 0 GPUs, or run on a machine that has them."
        )
    return torch.device("cuda", group.local_gpu)


@contextmanager
def configured_device(resources: Resources, group: ProcessGroup = ALONE) -> Iterator[torch.device]:
    """Yield the run's device with its number of threads and deterministic kernels; the old settings return after."""
    device = choose_device(resources, group)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS refuses to be deterministic
    switches: Any = torch.utils.deterministic  # of which no types know the one that is a property
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    fills = switches.fill_uninitialized_memory
    torch.set_num_threads(resources.cpus)
    torch.use_deterministic_algorithms(True)
    switches.fill_uninitialized_memory = False  # NaN in every fresh tensor helps to debug and costs a write of each
    try:
        yield device
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        switches.fill_uninitialized_memory = fills


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
    """Return whether an allocation failed, on the GPU or (as torch reports it there) on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators, on every device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """Return all global random states as tensors and plain values."""
    numpy_state: Any = np.random.get_state(legacy=False)
    # A process that has not touched a GPU must not for this.
    on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch publishes no types for it
    return {
        "python": random.getstate(),
        "numpy_key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
        "numpy_position": numpy_state["state"]["pos"],
        "numpy_gauss": (numpy_state["has_gauss"], numpy_state["gauss"]),
        "torch_cpu": torch.get_rng_state(),
        "torch_cuda": [torch.cuda.get_rng_state()] if on_gpu else [],
    }


def load_random_state(state: dict[str, Any]) -> None:
    """Set what `random_state()` gave."""
    random.setstate(state["python"])
    key = state["numpy_key"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, state["numpy_position"], *state["numpy_gauss"]))
    torch.set_rng_state(state["torch_cpu"])
    if state["torch_cuda"]:
        torch.cuda.set_rng_state(state["torch_cuda"][0])


GIB: Final = 2**30

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class OverMemoryCapError(MemoryError):
    """A step needed more memory than the run may use: the verdict `out_of_memory`."""


class MemoryCap:
    """`limit_bytes` of tensors, so that a large device can stand in for a small one, or None: as much as it has.

    On a GPU torch's allocator is given that much and no more, so an allocation beyond it fails as on a smaller GPU. On
    a CPU nothing can refuse an allocation; there the exact peak of a measured step is compared with the cap.
    """

    def __init__(self, device: torch.device, cap_gib: float | None) -> None:
        self.limit_bytes = None if cap_gib is None else round(cap_gib * GIB)
        self._device = device

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Make a GPU's allocator refuse memory over the cap, within the block."""
        if self._device.type != "cuda" or self.limit_bytes is None:
            yield
            return
        whole_bytes = torch.cuda.get_device_properties(self._device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, self.limit_bytes / whole_bytes), self._device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, self._device)

    def check(self, breakdown: MemoryBreakdown) -> None:
        """Raise `OverMemoryCapError` if a CPU's measured step held more than the cap."""
        if self.limit_bytes is not None and self._device.type == "cpu" and breakdown.peak_bytes > self.limit_bytes:
            raise OverMemoryCapError(
                f"a step with micro-batches of {pluralize(breakdown.micro_batch_sequences, 'sequence')} holds "
                f"{breakdown.peak_bytes} bytes of tensors, over the cap of {self.limit_bytes}."
            )

    def trial_limit_bytes(self) -> int | None:
        """Return the memory that a trial may take: the cap; without one, on a CPU, the memory that is free now; None on
        a GPU."""
        if self.limit_bytes is not None or self._device.type != "cpu":
            return self.limit_bytes
        return free_host_bytes()


def free_host_bytes() -> int:
    """Return the memory that this process can still take, by the machine's and its container's limit."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit) - psutil.Process().memory_info().rss)
