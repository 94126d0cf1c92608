"""Device time: how long an attempt has held its device, from the worker's start (torch-free)."""

import time


class DeviceClock:
    """Starts when it is made: make it first, so that imports and data preparation count too."""

    def __init__(self, *, devices: int = 1, started_before_seconds: float = 0.0) -> None:
        """`devices` are held at once, and were so long before now."""
        self._devices, self._started = devices, time.perf_counter() - started_before_seconds

    def seconds(self) -> float:
        """Return the seconds since the start, for each device."""
        return self._devices * (time.perf_counter() - self._started)
