"""A process that has imported what an attempt needs before it is given one; it has done nothing else.

PreparedProcess() ──► waits for an attempt ──► clock(): the imports count as if they had begun just now
"""

import importlib
import os
import sys
import sysconfig
import time
from typing import Final

from worker.garbage import pause_collection
from worker.meters.clock import DeviceClock

MODULES: Final = ("worker.attempt", "worker.run", "worker.models")
"""What every attempt imports before and after its hello; nearly all of the rest comes with them."""


class PreparedProcess:
    """Imports when it is made, which takes seconds; a run's figures are then those of a process that starts anew."""

    def __init__(self) -> None:
        begun = time.perf_counter()
        with pause_collection():
            for name in MODULES:
                importlib.import_module(name)
            sys.modules["worker.models"].load_transformers()  # nearly every attempt trains one of its models
        self._import_seconds = time.perf_counter() - begun
        self._changed_at = {file: modification_time(file) for file in own_files()}

    def clock(self) -> DeviceClock:
        """The device time of an attempt that begins now: its imports belong to it, although they came earlier."""
        return DeviceClock(started_before_seconds=self._import_seconds)

    def is_outdated(self) -> bool:
        """Whether code that is being worked on has been changed since: a new process would run other code."""
        return any(modification_time(file) != before for file, before in self._changed_at.items())


def own_files() -> list[str]:
    """Each imported file that lies outside Python's own folders, an editable installation's for instance."""
    installed = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [file for file in files if file and not file.startswith(installed)]


def modification_time(file: str) -> float:
    """Its time of change; 0 where it is gone."""
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0
