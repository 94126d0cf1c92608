"""One preparation of a dataset at a time on a machine: a lock that the kernel frees however its holder ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock at `path`; where another process has it, say so through `on_wait` and wait for its end."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            on_wait(f"process {holder} is preparing {path.stem}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
