"""The memory meter sees what is really allocated."""

import torch

from worker.meters.memory import MemoryMeter

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
