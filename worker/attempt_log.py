"""The log of an attempt: all that its process prints, native code included, in a file that outlives it.

`<run folder>/logs/attempt-2.log`. It stays when the run has ended: the words of an attempt that was killed are nowhere
else. Schedulers keep their workers' output as long as they run themselves.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO, cast

logger = logging.getLogger(__name__)

FOLDER: Final = "logs"
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_path(run_folder: Path, attempt: int, rank: int = 0) -> Path:
    """Where the log of an attempt is; the further processes of a crew have one each beside it."""
    return run_folder / FOLDER / (f"attempt-{attempt}.log" if rank == 0 else f"attempt-{attempt}-process-{rank}.log")


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Send standard output and standard error of this process, and the log, into a file until the block ends.

    What a full disk has no room for is lost: a log ends no training, neither by a `print` nor where it cannot begin.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a", buffering=1)
    except OSError as error:
        logger.warning("this attempt has no log: %s", error)
        yield
        return
    with _closing(opened) as file:
        handler = logging.StreamHandler(steady(file))
        handler.setFormatter(logging.Formatter(FORMAT))
        ours, level = logging.getLogger("worker"), logging.getLogger("worker").level
        ours.setLevel(logging.INFO)
        logging.getLogger().addHandler(handler)
        kept = [(number, os.dup(number)) for number in (1, 2)]
        before = sys.stdout, sys.stderr
        try:
            _flush()
            sys.stdout, sys.stderr = steady(sys.stdout), steady(sys.stderr)
            for number, _ in kept:
                os.dup2(file.fileno(), number)
            yield
        finally:
            _flush()
            sys.stdout, sys.stderr = before
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)
            logging.getLogger().removeHandler(handler)
            ours.setLevel(level)


class SteadyStream:
    """A text stream whose writes never fail: a log on a full disk must end no process. What was lost is counted, and
    told once there is room again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost_lines = 0

    def write(self, text: str) -> int:
        """Write, or count what could not be written."""
        try:
            if self._lost_lines:
                self._stream.write(f"({self._lost_lines} lines of this log were lost: its disk had no room)\n")
                self._stream.flush()
                self._lost_lines = 0
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._lost_lines += text.count("\n")
        return len(text)

    def flush(self) -> None:
        """Every write was flushed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def steady(stream: TextIO) -> TextIO:
    """The stream, whose writes never fail from now on."""
    return cast("TextIO", SteadyStream(stream))


@contextmanager
def _closing(file: TextIO) -> Iterator[TextIO]:
    """Close it at the end, whether its last lines find room or not."""
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def _flush() -> None:
    """What Python still holds belongs to where it was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
