"""A process that has imported what an attempt needs before it is given one; it has done nothing else.

PreparedProcess() ──► waits for an attempt ──► clock(): the imports count as if they had begun just now
"""

import importlib
import os
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

from worker.meters.clock import DeviceClock

MODULES: Final = ("worker.attempt", "worker.run")
"""What every attempt imports before and after its hello; all of the rest comes with them."""


class PreparedProcess:
    """Imports when it is made, which takes seconds; a run's figures are then those of a process that starts anew."""

    def __init__(self) -> None:
        begun = time.perf_counter()
        for name in MODULES:
            importlib.import_module(name)
        self._import_seconds = time.perf_counter() - begun
        self._changed_at = changed_at()

    def clock(self) -> DeviceClock:
        """The device time of an attempt that begins now: its imports belong to it, although they came earlier."""
        return DeviceClock(started_before_seconds=self._import_seconds)

    def is_outdated(self) -> bool:
        """Whether code that is being worked on has been changed since: a new process would run other code."""
        return changed_at() != self._changed_at


def changed_at() -> dict[str, float]:
    """When each imported file that lies outside Python's own folders was changed; 0 for one that is gone."""
    installed = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file: _changed_at(Path(file)) for file in files if file and not file.startswith(installed)}


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
