"""NVML's meter: without a driver, and against a stand-in for NVML in a container or on a part of a GPU (MIG)."""

import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from worker.meters.nvml import DeviceUse, NvmlMeter


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is about machines without a GPU")
def test_without_a_driver_it_gives_no_figure_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """A run goes on without it."""
    with caplog.at_level(logging.WARNING):
        meter = NvmlMeter("00000000-0000-0000-0000-000000000000")
        meter.sample()

    assert (meter.peak_bytes, meter.energy_joules()) == (None, None)
    assert meter.device_use() == DeviceUse(utilization=None, memory_bytes=None)
    assert meter.note is not None
    assert meter.note
    assert meter.note in caplog.text


class StandInError(Exception):
    """An error like NVML's."""


class StandIn:
    """NVML's functions over one device, a whole one or a part."""

    NVMLError = StandInError

    def __init__(self, kind: str, processes: list[tuple[int, int | None]]) -> None:
        self.kind, self.processes, self.millijoules = kind, processes, 5_000
        self.deaf = kind == "MIG"

    def nvmlInit(self) -> None:  # noqa: N802
        """Succeed: there is a driver."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != f"{self.kind}-device":
            raise StandInError("Not Found")
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if handle.startswith("MIG"):
            raise StandInError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        if self.deaf:
            raise StandInError("Not Supported")
        return SimpleNamespace(gpu=73, memory=12)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(total=100, used=40, free=60)


def test_it_takes_our_own_process_and_the_energy_since_it_was_made() -> None:
    """Millijoules become joules."""
    library = StandIn("GPU", [(1, 999), (os.getpid(), 70)])
    meter = NvmlMeter("device", library)
    library.millijoules = 8_500

    meter.sample()

    assert (meter.peak_bytes, meter.energy_joules(), meter.note) == (70, 3.5, None)


@pytest.mark.parametrize(
    ("processes", "peak_bytes", "note"),
    [
        ([(1, 70)], 70, None),
        ([(1, 70), (2, 80)], None, "2 processes"),
        ([], None, "0 processes"),
        ([(os.getpid(), None)], None, "memory"),
    ],
)
def test_in_a_container_the_only_process_is_ours(
    processes: list[tuple[int, int | None]], peak_bytes: int | None, note: str | None
) -> None:
    """A run holds its device alone; where that does not settle it, it says so."""
    meter = NvmlMeter("device", StandIn("GPU", processes))

    meter.sample()

    assert meter.peak_bytes == peak_bytes and (meter.note is None) == (note is None)
    assert (note or "") in (meter.note or "")


def test_on_a_part_of_a_gpu_memory_is_the_parts_and_energy_is_left_out() -> None:
    """MIG devices have identities of their own."""
    meter = NvmlMeter("device", StandIn("MIG", [(os.getpid(), 70)]))

    meter.sample()

    assert (meter.peak_bytes, meter.energy_joules()) == (70, None)
    assert "MIG" in (meter.note or "")
    assert meter.device_use() == DeviceUse(utilization=None, memory_bytes=40)


def test_what_a_device_does_not_tell_is_left_out_and_said_once() -> None:
    """The rest is told."""
    library = StandIn("GPU", [])
    meter = NvmlMeter("device", library)
    assert meter.device_use() == DeviceUse(utilization=0.73, memory_bytes=40)
    library.deaf = True
    assert meter.device_use() == meter.device_use() == DeviceUse(utilization=None, memory_bytes=40)
    assert "Not Supported" in (meter.note or "")
