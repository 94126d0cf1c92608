"""Files that several processes share: they appear whole or not at all, however their writer ends (torch-free).

write_atomically(path, content)    a reader sees the old content or the new one
atomic_replacement(path)                    the same for a library that writes to a path of its own
create_once(path, content)         whoever comes second leaves the first one's file
hold_lock(path, on_wait)           one process at a time; the kernel frees it however its holder ends
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

UNFINISHED: Final = ".unfinished"
"""The ending of the names of unfinished files and folders."""
LOOK_SECONDS: Final = 0.2
"""The interval at which the lock is tried again, and the reason to wait checked."""
SAY_SECONDS: Final = 60.0
"""The interval at which the waiting is reported."""


def write_atomically(path: Path, content: bytes | str, *, durable: bool = False) -> None:
    """Write the file; text as UTF-8. Arguments and errors are those of `replacing`."""
    with atomic_replacement(path, durable=durable) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_replacement(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a path to write to, which gets the name `path` when the block ends; an error leaves no trace of it.

    Several may write at once: each has a file of its own. One that is killed leaves it behind, named
    `<name>.<random>.unfinished`.

    Args:
        path: Replaced where it is there already; its folder must exist.
        durable: Whether content and name are on the disk afterwards, so that they outlive a loss of power, and not
            the process alone.

    Raises:
        OSError: as the writing does; the disk may be full.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        yield unfinished
        if durable:
            sync(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)  # on a full disk it would take room that a later one needs
    if durable:
        sync(path.parent)


def create_once(path: Path, content: str, *, mode: int) -> None:
    """Write the file durably, with those rights from its first moment on; one that is there already stays."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Bring a file's content, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def hold_lock(
    path: Path, on_wait: Callable[[str], None], check_stop: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock at `path`; where another process has it, say so through `on_wait` and wait for its end.
    `check_stop` is called meanwhile, and raises where there is no use in waiting any longer."""
    with path.open("a+") as file:
        started = say_next = time.monotonic()
        while not try_lock(file):
            if (now := time.monotonic()) >= say_next:
                file.seek(0)
                holder, waited = file.read().strip() or "unknown", now - started
                so_far = f", for {waited:.0f} s so far" if waited >= 1 else ""
                on_wait(f"process {holder} is preparing {path.stem} or fetches it; waiting for it{so_far}")
                say_next = now + SAY_SECONDS
            check_stop()
            time.sleep(LOOK_SECONDS)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def try_lock(file: IO[str] | int) -> bool:
    """Return whether the lock of an open file, or of a file descriptor, was free; it is held then."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
