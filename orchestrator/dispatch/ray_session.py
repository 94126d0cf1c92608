"""The folder of an embedded Ray, which nobody else may enter, and the end of everything that lives in it.

Ray makes each of its folders writable for everybody, without a sticky bit: any user of the machine could put a symbolic
link where Ray writes next. So they lie below a folder that is closed:

    /tmp/adapm-bench-ray-XXXXXXXX       0700, ours; locked by the process that starts Ray for as long as it lives
        └── r/session_…/{logs,sockets}  0777, Ray's

A folder that can be locked belongs to nobody who lives. What its owner has left in there, processes and files, is ended
and removed by the supervisor whose dispatcher was killed, and by the next start of any service of the same user.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from orchestrator.errors import ClusterError

PREFIX = "adapm-bench-ray-"
NOTE = "ray_folder"
"""A file in the data folder that says where the embedded Ray keeps its sockets and logs."""

MOST_SOCKET_BYTES = 107
"""A Unix socket's path on Linux."""
SOCKET_BYTES = len(f"/{PREFIX}12345678/r/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")
"""The length that we and Ray add to the folder for temporary files in the longest path of a socket."""
MOST_BASE_BYTES = MOST_SOCKET_BYTES - SOCKET_BYTES

END_SECONDS = 30.0
"""Killed processes are gone within milliseconds, but for one that waits for a broken disk."""


@dataclass(frozen=True, kw_only=True)
class RaySession:
    """A closed folder for one Ray, and the lock that says that its owner lives."""

    folder: Path
    lock: int

    @property
    def temp_dir(self) -> Path:
        """Return the folder for Ray's temporary files, which Ray opens to everybody."""
        return self.folder / "r"

    def close(self) -> None:
        """End every other process that writes in the folder, and remove it. Raises `ClusterError`."""
        try:
            _end_writers(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            os.close(self.lock)


def open_session(data_folder: Path) -> RaySession:
    """Return a fresh folder for this process's Ray; what dead services have left is ended first. Raises
    `ClusterError`."""
    end_leftovers(data_folder)
    base = folder_for_sockets()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_at(lock, folder):
            break
        os.close(lock)  # a service that starts as well took it for a leftover before it was locked
    (data_folder / NOTE).write_text(str(folder))
    return RaySession(folder=folder, lock=lock)


def close_session(session: RaySession, data_folder: Path) -> None:
    """End and remove what is left of this process's Ray, after Ray's own ending. Raises `ClusterError`."""
    session.close()
    (data_folder / NOTE).unlink(missing_ok=True)


def end_leftovers(data_folder: Path) -> None:
    """End each Ray of ours whose owner is dead, with all of its processes, and remove its folder.

    Raises `ClusterError` if a process does not end.
    """
    for folder in _session_folders(data_folder):
        session = _lock_if_orphaned(folder)
        if session is not None:
            session.close()


def folder_for_sockets() -> Path:
    """Return the folder for temporary files, or `/tmp` if that path is too long for sockets. Raises `ClusterError`."""
    for base in _bases():
        if len(os.fsencode(base)) <= MOST_BASE_BYTES and _keeps_strangers_out(base):
            return base
    raise ClusterError(
        f"Ray's sockets need a folder for temporary files whose path has at most {MOST_BASE_BYTES} bytes, and in which "
        f"others cannot rename what is ours, not {' or '.join(map(str, _bases()))}; set TMPDIR to one"
    )


def _bases() -> tuple[Path, ...]:
    return tuple(dict.fromkeys([Path(tempfile.gettempdir()), Path("/tmp")]))  # noqa: S108 - it is looked at first


def _keeps_strangers_out(base: Path) -> bool:
    """Return whether nobody else can put a folder of theirs in the place of ours: sticky, or not open to everybody."""
    try:
        modes = [path.stat().st_mode for path in (base.resolve(), *base.resolve().parents)]
    except OSError:
        return False
    return os.access(base, os.W_OK | os.X_OK) and all(mode & stat.S_ISVTX or not mode & stat.S_IWOTH for mode in modes)


def _session_folders(data_folder: Path) -> Iterator[Path]:
    for base in _bases():
        with suppress(OSError):
            yield from base.glob(f"{PREFIX}*")
    with suppress(OSError):  # of a service whose TMPDIR was another one
        yield Path((data_folder / NOTE).read_text())


def _lock_if_orphaned(folder: Path) -> RaySession | None:
    """Return the session of a folder that this module made for this user, and whose owner is dead."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(lock)
    closed = status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) == 0o700 and folder.name.startswith(PREFIX)
    try:
        if closed:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, folder):
                return RaySession(folder=folder, lock=lock)
    except BlockingIOError:
        pass  # its owner lives
    os.close(lock)
    return None


def _is_at(lock: int, folder: Path) -> bool:
    """Return whether what is locked is still what the path names."""
    try:
        return os.path.samestat(os.fstat(lock), folder.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _end_writers(folder: Path) -> None:
    """Kill the processes that write in `folder`, and their descendants, until there is none: some start others."""
    deadline = time.monotonic() + END_SECONDS
    while living := _writers(folder):
        if time.monotonic() > deadline:
            numbers = ", ".join(str(process.pid) for process in living)
            raise ClusterError(f"processes of an earlier Ray do not end: {numbers}; end them, then start again")
        for process in living:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(living, timeout=1.0)


def _writers(folder: Path) -> set[psutil.Process]:
    """Return our other processes that have a file below `folder` open for writing, and their descendants.

    Each of Ray's has its log open, whatever it calls itself in the list of processes; who reads a log is spared.
    """
    writers: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.uids().real == os.getuid() and _writes_below(process, folder):
                writers |= {process, *process.children(recursive=True)}
    return {process for process in writers if process.pid != os.getpid()}


def _writes_below(process: psutil.Process, folder: Path) -> bool:
    try:
        links = list(Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:  # it has ended
        return False
    for link in links:
        with suppress(OSError):  # it was closed meanwhile
            if link.lstat().st_mode & stat.S_IWUSR and os.readlink(link).startswith(f"{folder}/"):
                return True
    return False
