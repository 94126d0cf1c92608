"""Waiting for a condition: the one way in which tests wait for another thread or process."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

Found = TypeVar("Found")

PAUSE_SHARE = 0.02
"""The pause as a share of the time waited so far: an early answer is seen at once, a late one is not asked for all the
time, …"""
PAUSE_LOOKS = 4
"""… and a pause is as long as so many looks take of the processor: one may list processes or ask a service, and what is
waited for needs the processor, too."""
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 0.2


def until(
    look: Callable[[], Found | None],
    goal: str,
    seconds: float = 600.0,
    *,
    or_ended: subprocess.Popen[bytes] | None = None,
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
) -> Found:
    """Wait for a condition and return what was found; the bound is for a broken product, not an expectation of speed.

    A condition is false where it asks a process that has just ended, or reads a file that is not there yet. Fails at
    once where `or_ended` has ended. What passes by, such as a training, is looked at more often.
    """
    started = time.monotonic()
    while True:
        began = time.thread_time()
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            if answer := look():
                return answer
        waited_seconds = time.monotonic() - started
        assert or_ended is None or or_ended.poll() is None, f"{or_ended} ended before {goal}"
        assert waited_seconds < seconds, f"waited {seconds:.0f} s in vain until {goal}"
        looks_seconds = PAUSE_LOOKS * (time.thread_time() - began)
        pause_seconds = max(PAUSE_SHARE * waited_seconds, looks_seconds, SHORTEST_PAUSE_SECONDS)
        time.sleep(min(pause_seconds, longest_pause_seconds))
