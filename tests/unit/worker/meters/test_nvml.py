"""NVML's meter where there is no NVIDIA driver."""

import logging

import pytest
import torch

from worker.meters.nvml import NvmlMeter


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is about machines without a GPU")
def test_without_a_driver_it_gives_no_figure_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """A run goes on without it."""
    with caplog.at_level(logging.WARNING):
        meter = NvmlMeter("00000000-0000-0000-0000-000000000000")
        meter.sample()

    assert (meter.peak_bytes, meter.energy_joules()) == (None, None)
    assert meter.note is not None
    assert meter.note.startswith("NVML is not available: ")
    assert meter.note in caplog.text
