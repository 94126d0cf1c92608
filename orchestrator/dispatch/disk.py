"""Room on disks. Below a floor of free space nothing new is begun, lest runs lose what they report; on a full disk the
service waits, says so, and goes on by itself once somebody has made room."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from worker.errors import is_disk_full

GB = 1e9
FULL_BYTES = 2**20
"""The free space below which the database's next write may fail."""
START_BYTES = 16 * 2**20
"""The space that a process of the service needs to start, Ray's sockets and logs included."""
ROOM_SECONDS = 1.0
"""The interval between two checks of the disk."""


def shortage(folder: Path, floor_bytes: int) -> str | None:
    """Return the reason why no run starts now, in a sentence; None if there is enough space."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return f"the data folder {folder} cannot be looked at: {error.strerror}"
    if free_bytes < FULL_BYTES:
        return (
            f"the disk of {folder} is full: nothing can be stored, submissions are refused, and trainings keep their "
            "reports; make room, and the service goes on by itself"
        )
    if free_bytes >= floor_bytes:
        return None
    return (
        f"no run is begun: the disk of {folder} has {free_bytes / GB:.1f} GB free, and {floor_bytes / GB:.1f} GB are "
        "kept for what is running; make room, or lower ADAPM_BENCH_FREE_BYTES"
    )


def lack_of_room(folders: Iterable[Path]) -> str | None:
    """Return the reason why a process of the service cannot start now, in a sentence; None if there is room in each of
    the folders.

    Room is set aside and given back, so that a quota counts, too. Other faults of a folder are not reported.
    """
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=nearest_folder(folder)) as file:
                os.posix_fallocate(file.fileno(), 0, START_BYTES)
        except OSError as error:
            if is_disk_full(error):
                return (
                    f"the disk of {folder} is full: a start needs {START_BYTES / 2**20:.0f} MiB; "
                    "make room, and the service goes on by itself"
                )
    return None


def wait_for_room(folders: Sequence[Path], report: Callable[[str], object], stop: threading.Event) -> bool:
    """Wait until there is room in each of the folders, and report why, whenever that changes; return False if `stop`
    was set meanwhile."""
    reported = None
    while reason := lack_of_room(folders):
        if reason != reported:
            report(reason)
            reported = reason
        if stop.wait(ROOM_SECONDS):
            return False
    return True


def nearest_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that there is."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
