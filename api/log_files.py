"""Log files of the service's processes: capped, with the lines before in numbered copies beside them.

The processes hold their files open as standard error, so that tracebacks and the words of libraries are caught, too;
so a file is copied and emptied, not renamed. Lines written in that millisecond may be lost.
"""

import os
import shutil
from pathlib import Path

MOST_BYTES = 20 * 2**20
KEPT = 3


def cap(path: Path, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> None:
    """Where the file is too long, move its lines to `<name>.1`, what was there to `<name>.2`, and so on.

    Its writers must have opened it for appending.
    """
    if path.stat().st_size <= most_bytes:
        return
    copy = Path(f"{path}.0")
    try:
        shutil.copyfile(path, copy)  # first: a full disk must not cost the older ones
    except OSError:
        copy.unlink(missing_ok=True)
        raise
    for number in range(kept - 1, 0, -1):
        older = Path(f"{path}.{number}")
        if older.exists():
            older.replace(f"{path}.{number + 1}")
    copy.replace(f"{path}.1")
    os.truncate(path, 0)
