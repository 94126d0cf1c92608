"""The meter of use: exact means of counters, samples of a stand-in for NVML, and a real thread that takes them. The
memory meter, which sees what is really allocated."""

import threading
import time

import pytest
import torch

from tests.factories.reporters import reported
from tests.factories.specification import made_spec
from tests.factories.waiting import until
from worker.meters import usage
from worker.meters.memory import MemoryMeter
from worker.meters.nvml import DeviceUse, NvmlMeter
from worker.meters.usage import PERIOD_SECONDS, UsageMeter
from worker.run import Folders


class Device(NvmlMeter):
    """A GPU that says what it is told to say."""

    def __init__(self) -> None:
        self.joules: float | None = 100.0
        self.use = DeviceUse(utilization=0.25, memory_bytes=1000)
        self.asked = 0

    def energy_joules(self) -> float | None:
        return self.joules

    def device_use(self) -> DeviceUse:
        self.asked += 1
        return self.use


def test_the_processs_cpu_time_is_counted_not_sampled() -> None:
    """All that it spent since, by the time that went by; what is told once is not told again."""
    moments = iter([10.0, 14.0, 14.0, 14.5, 18.0, 18.0])
    meter = UsageMeter(now=lambda: next(moments))
    began = time.process_time()
    while time.process_time() < began + 0.05:
        pass

    figures = meter.figures()

    spent_seconds = time.process_time() - began
    assert 0.05 / 4 <= figures["cpu_cores"] <= (spent_seconds + 0.05) / 4
    assert 0.0 <= figures["host_cpu_utilization"] <= 1.0
    assert set(figures) == {"cpu_cores", "host_cpu_utilization"}
    assert meter.figures() == {}, "half a second later"
    assert meter.figures()["cpu_cores"] < figures["cpu_cores"] + 0.05 / 4


def test_power_is_the_energy_between_two_points() -> None:
    """And is unknown where the counter is, at either end."""
    device, now = Device(), 0.0
    meter = UsageMeter(device, now=lambda: now)
    now, device.joules = 2.0, 700.0
    assert meter.figures()["gpu_power_watts"] == 300.0
    now, device.joules = 4.0, None
    assert "gpu_power_watts" not in meter.figures()
    now, device.joules = 6.0, 900.0
    assert "gpu_power_watts" not in meter.figures()


@pytest.mark.parametrize("unknown", [None, DeviceUse(utilization=None, memory_bytes=None)])
def test_a_thread_samples_the_device_while_it_is_open(unknown: DeviceUse | None) -> None:
    """Means are over the samples that say something; there are none if none does."""
    device, now = Device(), 0.0
    if unknown is not None:
        device.use = unknown
    meter = UsageMeter(device, now=lambda: now)
    with meter:
        until(lambda: device.asked > 1, "two samples")
        now = PERIOD_SECONDS
        figures = meter.figures()
    count = device.asked

    readings = figures.get("gpu_utilization"), figures.get("gpu_memory_bytes")
    assert readings == ((0.25, 1000) if unknown is None else (None, None))
    assert "usage" not in {thread.name for thread in threading.enumerate()}
    assert device.asked == count


def test_the_points_of_a_run_have_it(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a period is over at every step; on a CPU nothing is said of a GPU."""
    monkeypatch.setattr(usage, "PERIOD_SECONDS", 0.0)
    reporter, _ = reported(made_spec(steps=4), folders)
    first, *points = reporter.points
    assert first.cpu_cores is None
    assert all((point.cpu_cores or 0.0) > 0.0 for point in points)
    assert all(0.0 <= (point.host_cpu_utilization or 0.0) <= 1.0 for point in points)
    assert {point.gpu_utilization for point in points} == {None}


MIB = 2**20


def test_the_meter_sees_a_known_allocation_in_the_present_and_in_the_peak() -> None:
    """200 MiB written to appear in the resident set, and stay in the peak after they are freed."""
    meter = MemoryMeter(torch.device("cpu"))
    before_bytes = meter.sample()
    block = torch.ones(200 * MIB, dtype=torch.uint8)

    with_bytes = meter.sample()
    peak_bytes = meter.peak().host_rss_bytes
    del block

    assert 195 * MIB < with_bytes - before_bytes < 230 * MIB
    assert peak_bytes >= with_bytes
    assert meter.sample() < with_bytes - 150 * MIB
    assert meter.peak().host_rss_bytes >= peak_bytes


def test_on_a_cpu_the_device_figures_do_not_exist() -> None:
    """They are null, never zero and never an error."""
    peak = MemoryMeter(torch.device("cpu")).peak()

    assert (peak.allocator_bytes, peak.nvml_process_bytes) == (None, None)
    assert 50 * MIB < peak.host_rss_before_bytes <= peak.host_rss_bytes
