"""A cap on the tensor memory of a run, so that a large device can stand in for a small one.

On a GPU torch's allocator is given that much and no more, so an allocation beyond it fails as on a smaller GPU. On a
CPU nothing can refuse an allocation; there the exact peak of a measured step is held against the cap.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import torch

from worker.records.result import MemoryBreakdown

GIB: Final = 2**30

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class OverMemoryCapError(MemoryError):
    """A step needed more memory than the run may use: the verdict `out_of_memory`."""


class MemoryCap:
    """`limit_bytes` of tensors, or None: as much as the device has."""

    def __init__(self, device: torch.device, cap_gib: float | None) -> None:
        self.limit_bytes = None if cap_gib is None else round(cap_gib * GIB)
        self._device = device

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Within, a GPU's allocator refuses what is over the cap."""
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
        """Raise `OverMemoryCapError` where a CPU's measured step held more than the cap."""
        if self.limit_bytes is not None and self._device.type == "cpu" and breakdown.peak_bytes > self.limit_bytes:
            raise OverMemoryCapError(
                f"a step with micro-batches of {breakdown.micro_batch_sequences} sequences holds "
                f"{breakdown.peak_bytes} bytes of tensors, over the cap of {self.limit_bytes}."
            )

    def trial_limit_bytes(self) -> int | None:
        """What a trial may hold: the cap; without one, on a CPU, the memory that is free now; None on a GPU."""
        if self.limit_bytes is not None or self._device.type != "cpu":
            return self.limit_bytes
        return free_host_bytes()


def free_host_bytes() -> int:
    """Memory that this process can still take, by the machine and by its container's limit."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit) - psutil.Process().memory_info().rss)
