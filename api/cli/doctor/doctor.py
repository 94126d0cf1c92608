"""`adapm-bench doctor`: what this machine has, what is missing, and the way out of each trouble.

Every examination runs in a process beside this one, one after the other, each within its time: a driver that hangs, a
library that crashes and a server that never answers are findings, not the end of the round. That process is ended then,
and a fresh one goes on with the examinations after it.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import typer

from api.cli.console import FAILED, LOG_WIDTH, Json, console, plain, print_json
from api.cli.doctor import database, devices, machine, services
from api.cli.doctor.check import Check, fails, passes
from api.cli.doctor.settings import settings_in_force, settings_table
from api.cli.settings import Data, environment_settings, read_settings
from orchestrator.settings import Settings, setting_source

SettingsOption = Annotated[
    bool, typer.Option("--settings", help="Show every setting, its value and where it comes from, instead of checking.")
]


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What is examined, by which function, and how long that may take."""

    name: str
    function: Callable[[Settings], Iterable[Check]]
    seconds: float = 20.0


EXAMINATIONS = (
    Examination(name="Python", function=machine.python),
    Examination(name="data folder", function=machine.data_folder),
    Examination(name="service", function=machine.service),
    Examination(name="database", function=database.database, seconds=30.0),
    Examination(name="storage", function=services.storage, seconds=60.0),
    Examination(name="MLflow", function=services.mlflow),
    Examination(name="NVML", function=devices.nvml),
    Examination(name="PyTorch", function=devices.torch, seconds=120.0),
    Examination(name="Ray", function=services.ray, seconds=60.0),
)
"""In the order of the answers."""

STARTING_SECONDS = 60.0
"""What the process may take to begin, beside its first examination: a busy machine loads Python slowly."""
NAME_COLUMNS = 12
NO_WAY_OUT = "look at the logs of this machine"


def doctor(settings: SettingsOption = False, data: Data = None, json: Json = False) -> None:
    """Check settings, Python, disk, port, database, clock, MLflow, GPU, PyTorch, Ray; exit code 1 if any is broken."""
    if data is not None:
        os.environ["ADAPM_BENCH_DATA_FOLDER"] = str(data)
    if settings:
        in_force = settings_in_force(environment_settings())
        print_json(in_force) if json else console().print(settings_table(in_force))
        return
    found: list[Check] = []
    for check in _checks():
        found.append(check)
        if not json:
            mark = "✗" if not check.ok else "!" if check.way_out else "✓"
            _print_wrapped(f"{mark} {check.name:<{NAME_COLUMNS}} ", check.found)
        if not json and check.way_out:
            _print_wrapped(f"  {'':<{NAME_COLUMNS}} → ", check.way_out)
    if json:
        print_json(found)
    else:
        faults = sum(not each.ok for each in found)
        notices = sum(each.ok and bool(each.way_out) for each in found)
        summary = f"{faults} broken" if faults else "nothing is broken"
        print(f"\n{len(found)} checks: {summary}{f', {notices} could be better' if notices else ''}")
    if not all(check.ok for check in found):
        raise typer.Exit(FAILED)


def _checks() -> Iterator[Check]:
    """The settings, each fault by itself, then what depends on them."""
    settings = read_settings()
    if isinstance(settings, Settings):
        sources = [found for field in type(settings).model_fields if (found := setting_source(field)) is not None]
        yield passes("settings", ", ".join(sources) or "all by default")
        yield from examine(settings)
        return
    for fault in settings:
        what, _, way_out = fault.rpartition("; ")
        yield fails("settings", what or fault, way_out if what else "correct or unset it: docs/reference/settings.md")
    for each in EXAMINATIONS:
        yield fails(each.name, "not examined: the settings have faults", "correct the settings first")


def examine(settings: Settings, examinations: Sequence[Examination] | None = None) -> Iterator[Check]:
    """Every check of `EXAMINATIONS`, or of others, as soon as its examination has ended."""
    waiting = list(EXAMINATIONS if examinations is None else examinations)
    while waiting:
        with _Process(settings, tuple(waiting)) as process:
            while waiting:
                examination = waiting.pop(0)
                checks = process.next_checks(examination.seconds)
                if not checks:
                    yield fails(examination.name, process.why_silent(examination.seconds), NO_WAY_OUT)
                    break
                yield from checks


class _Process:
    """The process beside, as a context: when it is left, the process and what it started have ended."""

    def __init__(self, settings: Settings, examinations: tuple[Examination, ...]) -> None:
        spawning = multiprocessing.get_context("spawn")  # nothing of this process but what it is given
        self._answers, answers = spawning.Pipe(duplex=False)
        self._process = spawning.Process(target=_answer_all, args=(answers, settings, examinations), daemon=True)
        self._process.start()
        answers.close()
        self.next_checks(STARTING_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._answers.close()

    def next_checks(self, seconds: float) -> list[Check]:
        """What the next examination has found; nothing where it did not end in time, or took the process with it."""
        try:
            checks: list[Check] = self._answers.recv() if self._answers.poll(seconds) else []
        except EOFError:
            return []
        return checks

    def why_silent(self, seconds: float) -> str:
        """Why there is no answer."""
        self._process.join(1.0)
        status = self._process.exitcode
        if status is None:
            return f"no answer within {seconds:.0f} s"
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"examining it ended the process, {how}"


def _answer_all(answers: Any, settings: Settings, examinations: Iterable[Examination]) -> None:
    """The process beside: examine one after the other, and send what was found."""
    os.setsid()  # a group of its own, so that it can be ended with all that a library starts
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    answers.send([])  # it has begun: the time of the first examination counts from here
    for each in examinations:
        try:
            answers.send(list(each.function(settings)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the round goes on
            message = (str(error).splitlines() or [""])[0]
            answers.send([fails(each.name, f"{type(error).__name__}: {message}", NO_WAY_OUT)])


def _print_wrapped(head: str, text: str) -> None:
    width = shutil.get_terminal_size((LOG_WIDTH, 24)).columns if sys.stdout.isatty() else LOG_WIDTH
    wrapped = textwrap.wrap(plain(text), max(20, width - len(head)), break_long_words=False, break_on_hyphens=False)
    print(head + f"\n{' ' * len(head)}".join(wrapped or [""]), flush=True)
