"""Logs of attempts in the run's remote folder, so that they outlive their machine (torch-free).

    <folder of a run>/logs/attempt-2.log    the end of the file of that name in the run's folder here, a MiB at most

They go along with every checkpoint, and once more when the attempt ends. Nothing waits for them or fails with them.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path
from typing import Final

from worker.errors import LeaseRevokedError, RemoteFolderError
from worker.records.protocol import Assignment
from worker.remote.folder import RemoteFolder
from worker.reporting.log import FOLDER, log_path, open_log

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 2**20
LEAVING_SECONDS: Final = 5.0
"""An attempt that ends holds its device so long for its log."""


class RemoteLogs:
    """The logs of one attempt: its own, and those of the further processes of its group."""

    def __init__(self, url: str, run_folder: Path, attempt: int) -> None:
        """`url` is the run's own folder."""
        self._folder, self._run_folder, self._attempt = RemoteFolder(url), run_folder, attempt
        self._copied_bytes: dict[str, int] = {}

    def copy(self) -> None:
        """Copy what has changed; where that cannot be done a warning says so."""
        own_path = log_path(self._run_folder, self._attempt)
        try:
            for path in (
                *own_path.parent.glob(own_path.name),
                *own_path.parent.glob(f"{own_path.stem}-process-*{own_path.suffix}"),
            ):
                size_bytes = path.stat().st_size
                if size_bytes != self._copied_bytes.get(path.name):
                    self._folder.write(remote_name(path), end_of(path, MOST_BYTES))
                    self._copied_bytes[path.name] = size_bytes
        except (RemoteFolderError, OSError) as error:
            logger.warning("the log stays on this machine alone: %s", error)


def remote_name(path: Path) -> str:
    """Return the name of a log in the remote folder."""
    return f"{FOLDER}/{path.name}"


def end_of(path: Path, most_bytes: int) -> bytes:
    """Return the last bytes of a log, from a line's beginning. Raises `OSError`, and `LinkedLogError` for a link."""
    with os.fdopen(open_log(path), "rb") as file:
        start = max(file.seek(0, SEEK_END) - most_bytes, 0)
        file.seek(start)
        return whole_lines(file.read(most_bytes)) if start else file.read(most_bytes)


def whole_lines(cut: bytes) -> bytes:
    """Return the bytes without the line that the cut went through; all of them if there is no other line."""
    return cut.partition(b"\n")[2] or cut


@contextmanager
def copy_logs_at_end(assignment: Assignment) -> Iterator[None]:
    """Copy the logs when the block ends, however it ends, unless the run belongs to somebody else by then."""
    url = assignment.checkpoint_url
    try:
        yield
    except LeaseRevokedError:
        url = None
        raise
    finally:
        if url is not None:
            logs = RemoteLogs(url, Path(assignment.run_folder), assignment.attempt)
            thread = threading.Thread(target=logs.copy, name="log-copy", daemon=True)
            thread.start()
            thread.join(LEAVING_SECONDS)
