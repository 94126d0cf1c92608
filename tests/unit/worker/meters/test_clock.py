"""Device time."""

import time

from worker.meters.clock import DeviceClock


def test_device_time_counts_from_the_making_of_the_clock() -> None:
    """It runs by itself and in seconds."""
    start = time.perf_counter()
    clock = DeviceClock()
    created_at = time.perf_counter()
    time.sleep(0.05)

    at_least = time.perf_counter() - created_at
    seconds = clock.seconds()
    assert 0.05 <= at_least <= seconds <= time.perf_counter() - start
