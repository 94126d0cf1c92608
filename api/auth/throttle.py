"""The rate of requests of each caller: a token bucket for each key and address, in the memory of this process.

A bucket holds some seconds' worth of requests, so that a burst passes and a flood does not.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_BUCKETS = 20_000
"""Callers that are remembered at once, about 4 MB; beyond it those that have all of their tokens are forgotten."""


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class Throttle:
    """Buckets by name that fill with `a_second` tokens up to `burst`. To be used from one thread: the event loop's."""

    def __init__(self, a_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.a_second = a_second
        self.burst = burst
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, name: str) -> int | None:
        """Take one token; None if there was one, else the seconds after which there will be."""
        wait_seconds = self.wait(name)
        if wait_seconds is None:
            self._buckets[name].tokens -= 1
        return wait_seconds

    def wait(self, name: str) -> int | None:
        """Return the seconds until `take` would succeed, without taking a token."""
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room(now)
            bucket = self._buckets[name] = _Bucket(tokens=self.burst, filled_at=now)
        bucket.tokens = min(bucket.tokens + (now - bucket.filled_at) * self.a_second, self.burst)
        bucket.filled_at = now
        return None if bucket.tokens >= 1 else max(math.ceil((1 - bucket.tokens) / self.a_second), 1)

    def _make_room(self, now: float) -> None:
        if len(self._buckets) < MOST_BUCKETS:
            return
        full_after = self.burst / self.a_second
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if now - bucket.filled_at < full_after}
        while len(self._buckets) >= MOST_BUCKETS:  # the oldest first: a dictionary keeps its order
            del self._buckets[next(iter(self._buckets))]
