"""One preparation of a dataset at a time on a machine: a lock that the kernel frees however its holder ends."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

LOOK_SECONDS: Final = 0.2
"""So often it is looked whether the lock is free, and whether to wait at all."""
SAY_SECONDS: Final = 60.0
"""So often it is said that it is still waited for."""


@contextmanager
def hold_lock(
    path: Path, on_wait: Callable[[str], None], check_stop: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock at `path`; where another process has it, say so through `on_wait` and wait for its end.
    `check_stop` is called meanwhile, and raises where there is no use in waiting any longer."""
    with path.open("a+") as file:
        started = say_next = time.monotonic()
        while not _taken(file):
            if (now := time.monotonic()) >= say_next:
                on_wait(_sentence(file, path.stem, now - started))
                say_next = now + SAY_SECONDS
            check_stop()
            time.sleep(LOOK_SECONDS)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sentence(file: IO[str], what: str, waited_seconds: float) -> str:
    file.seek(0)
    holder = file.read().strip() or "unknown"
    so_far = f", for {waited_seconds:.0f} s so far" if waited_seconds >= 1 else ""
    return f"process {holder} is preparing {what} or fetches it; waiting for it{so_far}"
