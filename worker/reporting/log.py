"""The log of an attempt: all that its process prints, native code included, in a file that outlives it.

`<run folder>/logs/attempt-2.log`. It stays when the run has ended: the words of an attempt that was killed are nowhere
else. Schedulers keep their workers' output as long as they run themselves.

Below the folder of all runs no link is followed, neither to write nor to read: whoever can put one there would have
the worker write to, or the service show, a file of another's choice.
"""

import errno
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO, cast

logger = logging.getLogger(__name__)

FOLDER: Final = "logs"
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_path(run_folder: Path, attempt: int, rank: int = 0) -> Path:
    """Return the path of an attempt's log; the further processes of a distributed run have one each beside it."""
    return run_folder / FOLDER / (f"attempt-{attempt}.log" if rank == 0 else f"attempt-{attempt}-process-{rank}.log")


class LinkedLogError(OSError):
    """A link in the place of a log, or no plain file of its own."""


def open_log(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a log, of which neither the run's folder, nor that of its logs, nor the file is a link.

    Raises `LinkedLogError` if one is, and `OSError` as `os.open` does.
    """
    folder = os.open(path.parents[2], os.O_RDONLY | os.O_DIRECTORY)
    try:
        for step in (path.parents[1].name, path.parent.name):
            subfolder = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = subfolder
        # Not waiting: a pipe in the file's place would keep us until somebody writes to it.
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise LinkedLogError(error.errno, "a link, or no plain file, is in its place", str(path)) from error
        raise
    finally:
        os.close(folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise LinkedLogError(errno.EMLINK, "a pipe, or a file with further names, is in its place", str(path))
    os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Send standard output and standard error of this process, and the log, into a file until the block ends.

    What a full disk has no room for is lost: a log ends no training, neither by a `print` nor where it cannot begin.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_log(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", buffering=1)
    except OSError as error:
        logger.warning("this attempt has no log: %s", error)
        yield
        return
    handler = logging.StreamHandler(steady_stream(file))
    handler.setFormatter(logging.Formatter(FORMAT))
    worker_logger, level = logging.getLogger("worker"), logging.getLogger("worker").level
    worker_logger.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    copies = [(number, os.dup(number)) for number in (1, 2)]
    streams = sys.stdout, sys.stderr
    try:
        _flush()
        sys.stdout, sys.stderr = steady_stream(sys.stdout), steady_stream(sys.stderr)
        for number, _ in copies:
            os.dup2(file.fileno(), number)
        yield
    finally:
        _flush()
        sys.stdout, sys.stderr = streams
        for number, copy in copies:
            os.dup2(copy, number)
            os.close(copy)
        logging.getLogger().removeHandler(handler)
        worker_logger.setLevel(level)
        with suppress(OSError):  # its last lines find room or not
            file.close()


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
                self._put(f"({self._lost_lines} lines of this log were lost: its disk had no room)\n")
                self._lost_lines = 0
            self._put(text)
        except OSError:
            self._lost_lines += text.count("\n")
        return len(text)

    def _put(self, text: str) -> None:
        """Write past the stream's buffer, which would keep failed writes and repeat them later."""
        try:
            number = self._stream.fileno()
        except (OSError, ValueError):  # a stream of Python's alone
            self._stream.write(text)
            self._stream.flush()
            return
        content = text.encode(errors="replace")
        while content:
            content = content[os.write(number, content) :]

    def flush(self) -> None:
        """Do nothing, because every write was flushed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def steady_stream(stream: TextIO) -> TextIO:
    """Return the stream, whose writes never fail from now on."""
    return cast("TextIO", SteadyStream(stream))


def _flush() -> None:
    """Flush Python's buffers, which belong to the present output."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
