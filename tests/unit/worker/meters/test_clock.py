"""Device time."""

import time

from worker.meters.clock import DeviceClock


def test_device_time_counts_from_the_making_of_the_clock() -> None:
    """It runs by itself and in seconds."""
    clock = DeviceClock()
    time.sleep(0.05)

    assert 0.05 <= clock.seconds() < 1.0
