"""The data folder of an embedded service: one service at a time, and a note of where it answers.

The lock is an `flock` that the service's processes inherit, so that it lasts exactly as long as any of them lives,
however they end.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from orchestrator.errors import DataFolderError
from worker.files import try_lock, write_atomically

LOCK = "lock"
NOTE = "service.json"
LEFTOVER_SECONDS = 30.0
"""The time that the processes of a killed supervisor may take to write checkpoints and end."""


class ServiceNote(BaseModel):
    """The address of a data folder's service."""

    url: str
    pid: int


def lock_data_folder(folder: Path, on_wait: Callable[[str], None]) -> int:
    """Make the folder and lock it; returns the lock's file descriptor. Raises `DataFolderError`.

    Where the holder is dead but its processes are still ending, wait for them and say so through `on_wait`.
    """
    descriptor = _open_lock(folder)
    deadline = time.monotonic() + LEFTOVER_SECONDS
    reported = False
    while not try_lock(descriptor):
        holder = _holder(descriptor)
        if holder is not None or time.monotonic() > deadline:
            os.close(descriptor)
            raise DataFolderError(_refusal(folder, holder))
        if not reported:
            on_wait(f"waiting for the processes of an earlier service on {folder} to end")
            reported = True
        time.sleep(0.2)
    # Who holds the lock. The start time tells this process from a later one with the same number.
    me = psutil.Process()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{me.pid} {me.create_time()}".encode(), 0)
    return descriptor


def keep_private(folder: Path, umask: int) -> None:
    """Make the folder if there is none, and take from it and from what lies directly in it what `umask` forbids: an
    earlier version, or another umask, may have left it open. What is not ours stays as it is."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o777 & ~umask)
    for path in (folder, *folder.iterdir()):
        with suppress(OSError):  # gone meanwhile, or somebody else's
            if not path.is_symlink() and path.stat().st_mode & umask:
                path.chmod(stat.S_IMODE(path.stat().st_mode) & ~umask)


@contextmanager
def umask_of(bits: int) -> Iterator[None]:
    """Restrict the rights of new files of this process to that mask within the block."""
    old_mask = os.umask(bits)
    try:
        yield
    finally:
        os.umask(old_mask)


def write_note(folder: Path, url: str) -> None:
    """Tell clients on this machine where the service answers."""
    write_atomically(folder / NOTE, json.dumps({"url": url, "pid": os.getpid()}))


def remove_note(folder: Path) -> None:
    """Remove the note of the service's address, because it no longer answers."""
    (folder / NOTE).unlink(missing_ok=True)


def read_note(folder: Path) -> ServiceNote | None:
    """Return the note of the service that holds the folder's lock now, or None."""
    try:
        note = ServiceNote.model_validate_json((folder / NOTE).read_text())
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValidationError):
        return None
    try:
        holder = _holder(descriptor)
    finally:
        os.close(descriptor)
    return note if holder is not None and holder.pid == note.pid else None


def _open_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise DataFolderError(
            f"the data folder {folder.absolute()} is a file; choose a folder, or a name that is free, with --data"
        ) from error
    except OSError as error:
        raise DataFolderError(
            f"the data folder {folder.absolute()} cannot be used: {error.strerror}; "
            "make it writable, or choose another one with --data"
        ) from error


def _holder(descriptor: int) -> psutil.Process | None:
    """Return the process that signed the lock, if it is alive."""
    signature = os.pread(descriptor, 64, 0).decode(errors="replace").split()
    try:
        process = psutil.Process(int(signature[0]))
        return process if str(process.create_time()) == signature[1] else None
    except (psutil.Error, ValueError, IndexError):
        return None


def _refusal(folder: Path, holder: psutil.Process | None) -> str:
    note = read_note(folder)
    owner = f"process {holder.pid}" if holder else "another process"
    address = f", answering at {note.url}" if note else ""
    return (
        f"another service ({owner}{address}) uses the data folder {folder.absolute()}; "
        "use that one, stop it, or give this one a folder of its own with --data"
    )
