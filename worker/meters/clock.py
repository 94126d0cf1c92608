"""Device time: how long an attempt has held its device, from the worker's start (torch-free)."""

import time


class DeviceClock:
    """Starts when it is made: make it first, so that imports and data preparation count too."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started
