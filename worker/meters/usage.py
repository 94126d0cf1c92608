"""The use of a run's device and host: means over the time between two points, a second apart at least.

The process's CPU time and the device's energy are counters, so their differences miss nothing. NVML reports the use of
a GPU for the last fraction of a second alone: a thread asks for it while the run trains, also during long steps.
"""

import time
from collections.abc import Callable
from typing import Final, Self

import psutil

from worker.meters.nvml import SAMPLE_SECONDS, DeviceUse, NvmlMeter
from worker.repeating import Repeating

PERIOD_SECONDS: Final = 1.0
"""Least time that a mean is over. Linux counts the CPUs' time in hundredths of a second."""

Figures = dict[str, float | int]


class UsageMeter:
    """Fields of `Point` on the use of CPUs and GPU. As a context it samples the GPU, where there is one."""

    def __init__(self, nvml: NvmlMeter | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._now = nvml, now
        self._samples: list[DeviceUse] = []
        self._sampling = Repeating("usage", SAMPLE_SECONDS, self._sample)
        self.restart()

    def __enter__(self) -> Self:
        if self._nvml is not None:
            self._sampling.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sampling.stop()

    def restart(self) -> None:
        """Measure from here on."""
        psutil.cpu_percent()  # it measures from its last call in this thread
        self._samples.clear()
        self._began, self._cpu_seconds = self._now(), time.process_time()
        self._joules = self._nvml.energy_joules() if self._nvml else None

    def figures(self) -> Figures:
        """Return means since the last figures; empty if these are less than `PERIOD_SECONDS` ago."""
        seconds = self._now() - self._began
        if seconds < PERIOD_SECONDS:
            return {}
        used_cpu_seconds, joules, old_joules = (
            time.process_time() - self._cpu_seconds,
            self._nvml.energy_joules() if self._nvml else None,
            self._joules,
        )
        figures: Figures = {"cpu_cores": used_cpu_seconds / seconds, "host_cpu_utilization": psutil.cpu_percent() / 100}
        samples, self._samples = self._samples, []
        if shares := [sample.utilization for sample in samples if sample.utilization is not None]:
            figures["gpu_utilization"] = sum(shares) / len(shares)
        if sizes := [sample.memory_bytes for sample in samples if sample.memory_bytes is not None]:
            figures["gpu_memory_bytes"] = round(sum(sizes) / len(sizes))
        if joules is not None and old_joules is not None:
            figures["gpu_power_watts"] = (joules - old_joules) / seconds
        self._began, self._cpu_seconds, self._joules = self._now(), time.process_time(), joules
        return figures

    def _sample(self) -> None:
        assert self._nvml is not None
        self._samples.append(self._nvml.device_use())
