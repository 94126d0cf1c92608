"""The log of an attempt: all that its process prints, native code included, in a file that outlives it.

`<run folder>/logs/attempt-2.log`. It stays when the run has ended: the words of an attempt that was killed are nowhere
else. Schedulers keep their workers' output as long as they run themselves.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FOLDER: Final = "logs"
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_path(run_folder: Path, attempt: int, rank: int = 0) -> Path:
    """Where the log of an attempt is; the further processes of a crew have one each beside it."""
    return run_folder / FOLDER / (f"attempt-{attempt}.log" if rank == 0 else f"attempt-{attempt}-process-{rank}.log")


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Send standard output and standard error of this process, and the log, into a file until the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1) as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter(FORMAT))
        ours, level = logging.getLogger("worker"), logging.getLogger("worker").level
        ours.setLevel(logging.INFO)
        logging.getLogger().addHandler(handler)
        kept = [(number, os.dup(number)) for number in (1, 2)]
        try:
            _flush()
            for number, _ in kept:
                os.dup2(file.fileno(), number)
            yield
        finally:
            _flush()
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)
            logging.getLogger().removeHandler(handler)
            ours.setLevel(level)


def _flush() -> None:
    """What Python still holds belongs to where it was printed."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
