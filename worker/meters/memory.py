"""Peak memory of one attempt: host resident set always, allocator and NVML peaks where there is a GPU."""

import resource
import sys
from pathlib import Path

import torch

from worker.meters.nvml import NvmlMeter
from worker.record import PeakMemory

_STATUS = Path("/proc/self/status")


def host_rss_bytes() -> int:
    """Resident set of this process now."""
    return _status_bytes("VmRSS") or _maxrss_bytes()


def host_rss_peak_bytes() -> int:
    """Largest resident set of this process so far.

    VmHWM, because `ru_maxrss` starts at the size of the process that executed this one.
    """
    return _status_bytes("VmHWM") or _maxrss_bytes()


def _status_bytes(field: str) -> int | None:
    """A memory field of /proc/self/status (in KiB there); None where the system has none."""
    try:
        status = _STATUS.read_bytes()
    except OSError:
        return None
    _, found, rest = status.partition(field.encode() + b":")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else None


def _maxrss_bytes() -> int:
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes


class MemoryMeter:
    """Make it just before the model: what the process holds then is `host_rss_before_bytes`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before_bytes = self._peak_bytes = host_rss_bytes()
        self._nvml = NvmlMeter(device) if device.type == "cuda" else None
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def sample(self) -> int:
        """Host resident set now, in bytes; NVML keeps no peak for a process, so its figure is sampled here."""
        if self._nvml is not None:
            self._nvml.sample()
        rss_bytes = host_rss_bytes()
        # The kernel counts the present and the peak apart, and either may lag by some pages.
        self._peak_bytes = max(self._peak_bytes, rss_bytes)
        return rss_bytes

    def peak(self) -> PeakMemory:
        """The peaks so far; none ever falls."""
        self.sample()
        self._peak_bytes = max(self._peak_bytes, host_rss_peak_bytes())
        cuda = self._device.type == "cuda"
        return PeakMemory(
            host_rss_bytes=self._peak_bytes,
            host_rss_before_bytes=self._before_bytes,
            allocator_bytes=torch.cuda.max_memory_allocated(self._device) if cuda else None,
            nvml_process_bytes=self._nvml.peak_bytes if self._nvml is not None else None,
        )
