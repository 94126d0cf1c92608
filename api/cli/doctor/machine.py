"""What the doctor sees of the machine itself: Python, the data folder and its disk, the port, who has it."""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from api.cli.doctor.check import Check, fails, passes
from api.cli.settings import URL_VARIABLE
from api.client.client import Client, ClientError
from api.processes.address import ServiceError, listen, listening_process
from api.processes.data_folder import read_note
from orchestrator.settings import Settings

OLDEST_PYTHON = (3, 11)
GB = 1e9
NETWORK_FILE_SYSTEMS = ("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "smb", "sshfs")
"""Kinds of file systems that several machines share; `nfs4` and `fuse.sshfs` are told by the word in them."""
PROBE_BYTES = 2**20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Mount(NamedTuple):
    """A place in the tree of files, and the kind of file system there."""

    mountpoint: str
    fstype: str


def python(_settings: Settings) -> Iterator[Check]:
    """The interpreter's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= OLDEST_PYTHON:
        yield passes("Python", found)
    else:
        yield fails("Python", found, "install Python 3.11 or newer")


def data_folder(settings: Settings) -> Iterator[Check]:
    """Whether the data folder can be written and locked, and whether its disk has room."""
    name, place = "data folder", settings.data_folder.absolute()
    parent = next(path for path in (place, *place.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        way_out = f"make {parent} writable, or set ADAPM_BENCH_DATA_FOLDER to another folder"
        yield fails(name, f"{place} cannot be written", way_out)
        return
    yield passes(name, f"{place}{'' if place.exists() else ' (will be made)'}")
    yield _disk_check(parent, settings.free_bytes)
    yield _lock_check(parent)


def _disk_check(folder: Path, floor_bytes: int) -> Check:
    """Room by what the disk says, and by what can really be written: quotas show only there."""
    name, free_bytes = "disk", shutil.disk_usage(folder).free
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        found = f"{folder} takes no file of 1 MiB: {error.strerror}"
        if error.errno in NO_SPACE:
            return fails(name, found, "free space, raise this user's quota, or set ADAPM_BENCH_DATA_FOLDER elsewhere")
        return fails(name, found, "mend the disk, or set ADAPM_BENCH_DATA_FOLDER to another one")
    found = f"{free_bytes / GB:.1f} GB free at {folder}"
    if free_bytes >= floor_bytes:
        return passes(name, found)
    way_out = (
        f"no waiting run is begun below {floor_bytes / GB:.1f} GB: make room "
        "(ADAPM_BENCH_KEEP_CHECKPOINTS=none), or lower ADAPM_BENCH_FREE_BYTES"
    )
    return fails(name, found, way_out)


def _lock_check(folder: Path) -> Check:
    """Whether a lock keeps a second opener out: one service at a time has a data folder."""
    name, kind = "locks", file_system(folder)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as probe, open(probe.name, "rb") as second:
        try:
            fcntl.flock(probe.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return fails(name, f"{folder} ({kind}) takes no locks: {error.strerror}", _ELSEWHERE)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(second.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fails(name, f"{folder} ({kind}) gives one lock to two at once", _ELSEWHERE)
    return passes(name, f"kept by the file system ({kind})")


_ELSEWHERE = "set ADAPM_BENCH_DATA_FOLDER to a folder of a local disk"


def file_system(path: Path, mounts: Sequence[Mount] | None = None) -> str:
    """The kind of file system that `path` lies on."""
    if mounts is None:
        mounts = [Mount(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    place = path.resolve()
    above = [mount for mount in mounts if place.is_relative_to(mount.mountpoint)]
    # Of two mounts on one place the later one hides the earlier.
    return max(reversed(above), key=lambda mount: len(Path(mount.mountpoint).parts)).fstype if above else "unknown"


def is_network_file_system(kind: str) -> bool:
    """Whether a file system of that kind is other machines', too."""
    return any(word in kind.lower() for word in NETWORK_FILE_SYSTEMS)


def service(settings: Settings) -> Iterator[Check]:
    """Whether the service answers, or could listen."""
    name, note = "service", read_note(settings.data_folder)
    url = os.environ.get(URL_VARIABLE) or (note.url if note else None)
    if url is None:
        yield _port_check(settings)
        return
    try:
        with Client(url, retries=0, timeout_seconds=5.0) as client:
            dispatch_blocker = client.health().hindrance
    except ClientError as error:
        if error.status is not None:
            found = f"{url} answers, but not as this service does"
            port = url.rpartition(":")[2].strip("/")
            who = listening_process(int(port)) if port.isdigit() else None
            there = f"what answers there{f' ({who})' if who else ''}"
            yield fails(name, found, f"stop {there}, or set ADAPM_BENCH_PORT")
        elif URL_VARIABLE in os.environ:
            yield fails(name, f"{URL_VARIABLE}={url}, and nothing answers there", f"start it, or unset {URL_VARIABLE}")
        else:
            yield _port_check(settings)
        return
    if dispatch_blocker is None:
        yield passes(name, f"answers at {url}")
    else:
        yield fails(name, f"answers at {url}, and begins no run", dispatch_blocker)


def _port_check(settings: Settings) -> Check:
    name = "service"
    try:
        listen(settings.host, settings.port).close()
    except ServiceError as error:
        who = listening_process(settings.port)
        stop = f"stop {who}, or choose" if who else "choose"
        return fails(name, str(error).partition(";")[0], f"{stop} another port: ADAPM_BENCH_PORT")
    free = f"port {settings.port} is free" if settings.port else "it will take any free port"
    return passes(name, f"not running; {free}")


def shared_memory_free_bytes() -> int | None:
    """What is free where processes share memory; None where that is not a folder (macOS)."""
    try:
        return shutil.disk_usage("/dev/shm").free  # noqa: S108 - looked at, nothing is written
    except OSError:
        return None
