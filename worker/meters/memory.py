"""Peak memory of one attempt: host resident set always, allocator and NVML peaks where there is a GPU."""

import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from worker.meters.nvml import meter_of
from worker.records.result import MemoryBreakdown, PeakMemory, Record


class Measurements(Record):
    """The measurements of one rank, or of all: every rank reports its figures, the result has one for all."""

    peak_memory: PeakMemory
    energy_joules: float | None
    nvml_note: str | None
    optimizer_state_bytes: int = 0
    memory_breakdown: MemoryBreakdown | None = None


def combine_measurements(measurements: Sequence[Measurements]) -> Measurements:
    """Peaks are the largest of a process, since each has a device of its own, and so is the optimizer's state, of which
    ranks may hold different parts; the breakdown is that of the highest step; energy is the sum."""
    energies = [measurement.energy_joules for measurement in measurements if measurement.energy_joules is not None]
    notes = [measurement.nvml_note for measurement in measurements if measurement.nvml_note is not None]
    peaks = {
        name: max(
            (peak for measurement in measurements if (peak := getattr(measurement.peak_memory, name)) is not None),
            default=None,
        )
        for name in PeakMemory.model_fields
    }
    return Measurements(
        peak_memory=PeakMemory.model_validate(peaks),
        energy_joules=sum(energies) if len(energies) == len(measurements) else None,
        nvml_note=notes[0] if notes else None,
        optimizer_state_bytes=max(measurement.optimizer_state_bytes for measurement in measurements),
        memory_breakdown=max(
            (measurement.memory_breakdown for measurement in measurements if measurement.memory_breakdown is not None),
            key=lambda breakdown: breakdown.peak_bytes,
            default=None,
        ),
    )


def host_rss_bytes() -> int:
    """Return the resident set of this process now, in bytes."""
    return _status_bytes("VmRSS") or _maxrss_bytes()


def _status_bytes(field: str) -> int | None:
    """Return a memory field of /proc/self/status, in bytes; None if the system has none."""
    try:
        status = Path("/proc/self/status").read_bytes()
    except OSError:
        return None
    _, separator, remainder = status.partition(field.encode() + b":")
    return int(remainder.split(maxsplit=1)[0]) * 1024 if separator else None


def _maxrss_bytes() -> int:
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes


class MemoryMeter:
    """Make it just before the model: what the process holds then is `host_rss_before_bytes`."""

    def __init__(self, device: torch.device) -> None:
        self._device, self.nvml = device, meter_of(device)
        self.restart()

    def restart(self) -> None:
        """Count from here: what came before, a rehearsal say, is not the run's."""
        with suppress(OSError):  # of a system without it
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak becomes the present resident set
        self._before_bytes = self._peak_bytes = host_rss_bytes()
        if self.nvml is not None:
            self.nvml.peak_bytes = None
            torch.cuda.reset_peak_memory_stats(self._device)

    def sample(self) -> int:
        """Return the host's resident set now, in bytes, and sample NVML, which keeps no peak for a process."""
        if self.nvml is not None:
            self.nvml.sample()
        rss_bytes = host_rss_bytes()
        # The kernel counts the present and the peak apart, and either may lag by some pages.
        self._peak_bytes = max(self._peak_bytes, rss_bytes)
        return rss_bytes

    def peak(self) -> PeakMemory:
        """Return the peaks so far; none ever falls."""
        self.sample()
        # Not `ru_maxrss` first: it starts at the size of the process that executed this one.
        self._peak_bytes = max(self._peak_bytes, _status_bytes("VmHWM") or _maxrss_bytes())
        cuda = self._device.type == "cuda"
        return PeakMemory(
            host_rss_bytes=self._peak_bytes,
            host_rss_before_bytes=self._before_bytes,
            allocator_bytes=torch.cuda.max_memory_allocated(self._device) if cuda else None,
            allocator_reserved_bytes=torch.cuda.max_memory_reserved(self._device) if cuda else None,
            nvml_process_bytes=self.nvml.peak_bytes if self.nvml is not None else None,
        )

    def measurements(self) -> Measurements:
        """Return the measurements of this process up to now."""
        meter = self.nvml
        return Measurements(
            peak_memory=self.peak(),
            energy_joules=None if meter is None else meter.energy_joules(),
            nvml_note=None if meter is None else meter.note,
        )
