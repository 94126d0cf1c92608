"""The service's processes, each found by its parent: a process that an earlier one left behind is never taken for it.

adapm-bench up ─┬─ api
                └─ dispatcher ─┬─ gcs_server
                               ├─ raylet ── ray::AttemptActor…, one for each attempt
                               └─ sweep_driver, one for each sweep
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from api.processes.data_folder import read_note
from tests.factories.waiting import until

EXECUTING = "ray::AttemptActor.execute"
"""Ray's name of an actor whose attempt is carried out."""
FORK_SERVER = "worker.fork_server"
"""The process that trainings are forked from: it is not a child of Ray's, and the raylet's process is its last
argument."""


@contextlib.contextmanager
def running_service(
    folder: Path, *words: str, slots: int = 2, environment: dict[str, str] | None = None
) -> Iterator[psutil.Process]:
    """`adapm-bench up` on that data folder, once it answers: its supervisor, which is stopped at the end."""
    command = [sys.executable, "-m", "api.cli", "up", "--data", str(folder), "--port", "0", "--slots", str(slots)]
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen([*command, *words], stdout=log, stderr=log, env=os.environ | (environment or {}))
        try:
            until(lambda: read_note(folder), "the service answers", or_ended=process)
            yield psutil.Process(process.pid)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(120)


def url_of(folder: Path) -> str:
    """Return the address of a data folder's service."""
    note = read_note(folder)
    assert note is not None, f"no service answers for {folder}"
    return note.url


def living(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the running ones; a zombie is none."""
    survivors = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                survivors.append(process)
    return survivors


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it and its children have started, for whoever looks at what is left of them."""
    members = [process]
    with contextlib.suppress(psutil.NoSuchProcess):
        members += process.children(recursive=True)
    return members + [descendant for member in tuple(members) for descendant in forked_by(member)]


def forked_by(raylet: psutil.Process) -> list[psutil.Process]:
    """The fork server of a raylet with all that trains there; none of another process."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if FORK_SERVER in (command := process.cmdline()) and command[-1] == str(raylet.pid):
                processes.append(process)
    return processes


def _children(parent: psutil.Process | None, is_wanted: Callable[[list[str]], bool]) -> list[psutil.Process]:
    """The living children of a living parent with such a command line."""
    matches = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in living(parent.children()) if parent is not None and living([parent]) else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                if is_wanted(child.cmdline()):
                    matches.append(child)
    return matches


def _only(processes: list[psutil.Process]) -> psutil.Process | None:
    assert len(processes) <= 1, f"one parent has several: {processes}"
    return processes[0] if processes else None


def api_of(supervisor: psutil.Process) -> psutil.Process | None:
    """The api that answers for this supervisor."""
    return _only(_children(supervisor, lambda command: "api" in command))


def dispatcher_of(supervisor: psutil.Process) -> psutil.Process | None:
    """The dispatcher of this supervisor."""
    return _only(_children(supervisor, lambda command: "dispatcher" in command))


def _program_of(dispatcher: psutil.Process | None, name: str) -> psutil.Process | None:
    return _only(_children(dispatcher, lambda command: bool(command) and Path(command[0]).name == name))


def raylet_of(dispatcher: psutil.Process | None) -> psutil.Process | None:
    """The raylet of a dispatcher's embedded Ray."""
    return _program_of(dispatcher, "raylet")


def cluster_address(raylet: psutil.Process) -> str:
    """Return the address of a raylet's Ray."""
    (address,) = (word.removeprefix(ADDRESS) for word in raylet.cmdline() if word.startswith(ADDRESS))
    return address


ADDRESS = "--gcs-address="


def gcs_of(dispatcher: psutil.Process | None) -> psutil.Process | None:
    """The control store of a dispatcher's embedded Ray."""
    return _program_of(dispatcher, "gcs_server")


def attempts_of(supervisor: psutil.Process, state: str = EXECUTING) -> list[psutil.Process]:
    """The processes of attempts on the Ray of this supervisor's dispatcher."""
    raylet = raylet_of(dispatcher_of(supervisor))
    return _children(raylet, lambda command: bool(command) and command[0].startswith(state))


def sweep_drivers_of(supervisor: psutil.Process) -> list[psutil.Process]:
    """The drivers of sweeps that this supervisor's dispatcher has started."""
    return _children(dispatcher_of(supervisor), lambda command: "api.processes.sweep_driver" in command)
