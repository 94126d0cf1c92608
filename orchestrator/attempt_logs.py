"""What attempts printed, read where it lies: in the run's folder here, or else as its copy in the remote folder."""

from pathlib import Path

from orchestrator.errors import NotFoundError
from orchestrator.remote import Remote
from worker.attempt_log import LinkedLogError, log_path
from worker.errors import RemoteFolderError
from worker.remote_answers import ANSWERS
from worker.remote_logs import end_of, remote_name, whole_lines


def log_tail(runs_folder: Path, remote: Remote, run_id: str, attempt: int, most_bytes: int) -> str:
    """The end of an attempt's log, from a line's beginning. Raises `NotFoundError` where there is none in reach."""
    path = log_path(runs_folder / run_id, attempt)
    try:
        tail = end_of(path, most_bytes)
    except LinkedLogError as error:
        raise NotFoundError(
            f"the log of attempt {attempt} of run {run_id} is not shown: {error.strerror}; remove that from its folder"
        ) from error
    except OSError as error:
        tail = _copy(remote.run_url(run_id), path, most_bytes, f"attempt {attempt} of run {run_id}", error)
    return tail.decode(errors="replace")


def _copy(url: str | None, path: Path, most_bytes: int, whose: str, here: OSError) -> bytes:
    if url is None:
        raise NotFoundError(
            f"{whose} has left no log here; it has not begun, or it ran on a machine that keeps its own"
        ) from here
    try:
        content = ANSWERS.read(url, remote_name(path), remembered_seconds=0)
    except RemoteFolderError as error:
        raise NotFoundError(f"{whose} has left no log here, and its copy cannot be had now: {error}") from error
    if content is None:
        raise NotFoundError(f"{whose} has left no log here, nor a copy at {url}: it has not begun, or copied none yet")
    return whole_lines(content[-most_bytes:]) if len(content) > most_bytes else content
