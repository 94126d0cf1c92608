"""A GPU and this process on it as NVIDIA's management library sees them: memory, context and workspaces included,
energy, and how busy the device is.

In a container NVML counts processes by ids of the host. A run holds its GPU alone, so where it lists one process only,
that is ours. On a part of a GPU (MIG) memory is the part's; energy and utilization are known of the whole GPU only, and
are left out.
What cannot be had has a sentence in `note`, never an error.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pynvml
import torch

logger = logging.getLogger(__name__)

SAMPLE_SECONDS: Final = 0.25
"""The interval of samples, at most four queries a second: one takes about a millisecond."""


Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """The device at one moment, all processes on it together; None is what NVML does not say."""

    utilization: float | None
    """Share of the last fraction of a second (a sixth to a whole one) in which a kernel was at work."""
    memory_bytes: int | None


class NvmlMeter:
    """Samples the process's memory and counts the device's energy from its making on."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        """Watch the device of that UUID, as torch prints it; `library` is `pynvml`, or what stands in for it."""
        self.peak_bytes: int | None = None
        self.note: str | None = None
        self._next_sample = 0.0
        self._samples = True
        self._is_whole = False
        self._handle: Any = None
        self._library: Any = pynvml if library is None else library
        self._start_millijoules: int | None = None
        try:
            self._library.nvmlInit()
            self._handle, self._is_whole = self._find(uuid)
        except Exception as error:  # noqa: BLE001 - a missing driver library must not end a training
            self._samples = False
            self._handle = None
            self._say(f"NVML is not available: {error}")
            return
        if self._is_whole:
            self._start_millijoules = self._millijoules()
        else:
            self._say("NVML tells neither energy nor utilization of a part of a GPU (MIG).")

    def sample(self) -> None:
        """Query the process's memory, unless it was queried a moment ago."""
        now = time.monotonic()
        if not self._samples or now < self._next_sample:
            return
        self._next_sample = now + SAMPLE_SECONDS
        try:
            processes = self._library.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._library.NVMLError as error:
            self._samples = False
            self._say(f"NVML lists no processes: {error}")
            return
        own_processes = [process for process in processes if process.pid == os.getpid()]
        if not own_processes and len(processes) == 1:
            own_processes = processes
        if not own_processes:
            self._say(f"NVML lists {len(processes)} processes by ids of another namespace, and cannot tell ours.")
        elif own_processes[0].usedGpuMemory is None:
            self._say("NVML may not see the memory of processes here.")
        else:
            self.peak_bytes = max(self.peak_bytes or 0, int(own_processes[0].usedGpuMemory))

    def energy_joules(self) -> float | None:
        """Return the energy of the device since this meter was made; None if it has no counter (before Volta, MIG)."""
        if self._start_millijoules is None:
            return None
        now = self._millijoules()
        return None if now is None else (now - self._start_millijoules) / 1e3

    def device_use(self) -> DeviceUse:
        """Return the device now."""
        if self._handle is None:
            return DeviceUse(utilization=None, memory_bytes=None)
        nvml, handle = self._library, self._handle
        busy, note = None, "NVML does not tell how the device is used"
        if self._is_whole:
            busy = self._ask(lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu), note)
        return DeviceUse(
            utilization=None if busy is None else busy / 100,
            memory_bytes=self._ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used), note),
        )

    def _ask(self, question: Callable[[], Answer], note: str) -> Answer | None:
        try:
            return question()
        except self._library.NVMLError as error:
            self._say(f"{note}: {error}")
            return None

    def _find(self, uuid: str) -> tuple[Any, bool]:
        """Return (handle, whether it is a whole GPU)."""
        try:
            return self._library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"), True
        except self._library.NVMLError:
            return self._library.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}"), False

    def _millijoules(self) -> int | None:
        read = self._library.nvmlDeviceGetTotalEnergyConsumption
        return self._ask(lambda: int(read(self._handle)), "NVML counts no energy")

    def _say(self, note: str) -> None:
        if self.note is None or note not in self.note:
            logger.warning("%s", note)
            self.note = note if self.note is None else f"{self.note} {note}"


def meter_of(device: torch.device) -> NvmlMeter | None:
    """Return the meter of a CUDA device; None for a CPU."""
    if device.type != "cuda":
        return None
    return NvmlMeter(str(torch.cuda.get_device_properties(device).uuid))


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver, or None if NVML does not say."""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # noqa: BLE001 - a missing driver library is not an error here
        return None
