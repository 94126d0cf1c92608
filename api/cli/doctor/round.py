"""The doctor's round: every look in a process beside this one, each within its time.

    parent ── python -m api.cli.doctor.round … ──►  child: one look after the other
       ◄────────── a line of JSON a look ───────────┘

A driver that hangs, a library that crashes and a server that never answers are findings, not the end of the round: the
process is ended, its look is broken, and a fresh process goes on with the looks after it.
"""

import contextlib
import importlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter

from api.cli.doctor.finding import Check, broken
from orchestrator.errors import SettingsError
from orchestrator.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is looked at, by which function, and how long that may take."""

    name: str
    function: str
    """`module:function` from `Settings` to checks, loaded in the process beside: some load torch or Ray."""
    seconds: float = 20.0


LOOKS = (
    Look(name="Python", function="api.cli.doctor.machine:python"),
    Look(name="data folder", function="api.cli.doctor.machine:data_folder"),
    Look(name="service", function="api.cli.doctor.machine:service"),
    Look(name="database", function="api.cli.doctor.database:database", seconds=30.0),
    Look(name="storage", function="api.cli.doctor.storage:storage", seconds=60.0),
    Look(name="MLflow", function="api.cli.doctor.services:mlflow"),
    Look(name="NVML", function="api.cli.doctor.devices:nvml"),
    Look(name="PyTorch", function="api.cli.doctor.devices:torch", seconds=120.0),
    Look(name="Ray", function="api.cli.doctor.services:ray", seconds=60.0),
)
"""In the order of the answers."""

STARTING_SECONDS = 60.0
"""What the process may take to begin, beside its first look: a busy machine loads Python slowly."""

_ANSWER = TypeAdapter(list[Check])


def go_round(looks: Sequence[Look] | None = None) -> Iterator[Check]:
    """Every check of `LOOKS`, or of others, as soon as its look has ended."""
    waiting = list(LOOKS if looks is None else looks)
    while waiting:
        with _Process(waiting) as process:
            while waiting:
                look = waiting.pop(0)
                checks = process.answer(look.seconds)
                yield from checks or [broken(look.name, process.last_words(look.seconds), "see what this machine logs")]
                if not checks:
                    break


class _Process:
    """The process beside, as a context: when it is left, the process and what it started have ended."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self._answers, theirs = os.pipe()
        words = [f"{look.name}={look.function}" for look in looks]
        command = [sys.executable, "-m", "api.cli.doctor.round", str(theirs), *words]
        silence = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=silence, stdout=silence, stderr=silence, pass_fds=[theirs], start_new_session=True
        )
        os.close(theirs)
        self._read = b""
        self.answer(STARTING_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._answers)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def answer(self, seconds: float) -> list[Check]:
        """What the next look has found; nothing where it did not end in its time, or took the process with it."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._answers, 65536) if ready else b""
            if not more:
                return []
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return _ANSWER.validate_json(line)

    def last_words(self, seconds: float) -> str:
        """Why there is no answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(1.0)
            how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            return f"looking at it ended the process, {how}"
        return f"no answer within {seconds:.0f} s"


def _look(name: str, function: str, settings: Settings | None) -> list[Check]:
    if settings is None:
        return [broken(name, "not looked at, for the settings cannot be understood", "mend the settings first")]
    module, _, attribute = function.partition(":")
    try:
        return list(getattr(importlib.import_module(module), attribute)(settings))
    except Exception as error:  # noqa: BLE001 - whatever it is, the round goes on
        said = (str(error).splitlines() or [""])[0]
        return [broken(name, f"{type(error).__name__}: {said}", "see what this machine logs")]


def _settings() -> Settings | None:
    try:
        return Settings()
    except (SettingsError, ValueError):  # pydantic's is a ValueError
        return None


def _main(descriptor: str, words: Sequence[str]) -> None:
    settings = _settings()
    with os.fdopen(int(descriptor), "wb") as answers:
        answers.write(b"[]\n")  # it has begun: the time of the first look counts from here
        answers.flush()
        for word in words:
            name, _, function = word.partition("=")
            answers.write(_ANSWER.dump_json(_look(name, function, settings)) + b"\n")
            answers.flush()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
