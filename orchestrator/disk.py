"""The disk-space guard: below a floor of free space nothing new is begun, lest runs lose what they report."""

import shutil
from pathlib import Path

GB = 1e9


def shortage(folder: Path, floor_bytes: int) -> str | None:
    """Why no run is begun now, in a sentence; None where there is space enough."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return f"the data folder {folder} cannot be looked at: {error.strerror}"
    if free_bytes >= floor_bytes:
        return None
    return (
        f"no run is begun: the disk of {folder} has {free_bytes / GB:.1f} GB free, and {floor_bytes / GB:.1f} GB are "
        "kept for what is running; make room, or lower ADAPM_BENCH_FREE_BYTES"
    )
