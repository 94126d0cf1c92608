"""Backoff: how long to wait between tries."""

import random
from collections.abc import Iterator


def backoff(first_seconds: float = 0.2, longest_seconds: float = 5.0) -> Iterator[float]:
    """Yield pauses between tries: doubling up to a bound, each shortened by up to a half so that workers spread out."""
    pause_seconds = first_seconds
    while True:
        yield pause_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        pause_seconds = min(2 * pause_seconds, longest_seconds)
