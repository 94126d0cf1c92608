"""A rampage: the embedded service on a PostgreSQL, and kill -9 of whatever chance picks of it.

An operator's part is played, too: what ended is started again, as systemd would.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from api.client.client import Client, ClientError
from api.processes.data_folder import read_note
from orchestrator.errors import OrchestratorError
from tests.chaos.processes import ATTEMPT, api_of, attempts_of, dispatcher_of, gcs_of, raylet_of
from tests.factories.stores import PostgresqlProcess

Answer = TypeVar("Answer")

VICTIMS = {"worker": 5, "api": 3, "postgresql": 3, "dispatcher": 2, "raylet": 2, "gcs": 1, "supervisor": 1}
"""The victims, by how often each is picked."""
FINDERS: dict[str, Callable[[psutil.Process], Sequence[psutil.Process | None]]] = {
    "worker": lambda supervisor: attempts_of(supervisor, ATTEMPT),
    "api": lambda supervisor: [api_of(supervisor)],
    "dispatcher": lambda supervisor: [dispatcher_of(supervisor)],
    "raylet": lambda supervisor: [raylet_of(dispatcher_of(supervisor))],
    "gcs": lambda supervisor: [gcs_of(dispatcher_of(supervisor))],
}
"""The finders of each kind of process below the supervisor."""


class Rampage:
    """A service and its killer."""

    def __init__(self, folder: Path, server: PostgresqlProcess, slots: int, seed: int) -> None:
        self._folder, self._server, self._slots = folder, server, slots
        self._chance = random.Random(seed)
        self._process: subprocess.Popen[bytes] | None = None
        self.kills: Counter[str] = Counter()
        self.starts = 0
        """Of the service, by the operator."""

    def keep_up(self) -> None:
        """Start the service where it has ended."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-m", "api.cli", "up", "--data", str(self._folder), "--port", "0"]
        command += ["--slots", str(self._slots)]
        environment = os.environ | {"ADAPM_BENCH_DATABASE_URL": self._server.url}
        with (self._folder.parent / "up.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.starts += 1

    def strike(self) -> str:
        """Kill one of the processes that there are, chosen by chance; what it was."""
        standing = {name: weight for name, weight in VICTIMS.items() if name not in FINDERS or self._find(name)}
        (name,) = self._chance.choices(list(standing), list(standing.values()))
        if name == "postgresql":
            self._server.kill()
            time.sleep(self._chance.uniform(0, 3))
            self._server.start()
        elif name == "supervisor":
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        elif victims := self._find(name):
            with contextlib.suppress(psutil.Error):
                self._chance.choice(victims).kill()
        self.kills[name] += 1
        return name

    def ask(self, question: Callable[[Client], Answer]) -> Answer | None:
        """Ask the service, once; None if it did not answer."""
        note = read_note(self._folder)
        if note is None:
            return None
        try:
            with Client(note.url) as client:
                return question(client)
        except (ClientError, OrchestratorError):
            return None

    def stop(self) -> None:
        """End the service in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(120)
            if self._process.poll() is None:
                self._process.kill()

    def _find(self, name: str) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process for process in FINDERS[name](psutil.Process(self._process.pid)) if process is not None]
        return []


def until(condition: Callable[[], bool], rampage: Rampage, goal: str, seconds: float) -> None:
    """Wait; the service is kept up meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {goal}"
        rampage.keep_up()
        time.sleep(1.0)


@contextlib.contextmanager
def rampage_on(folder: Path, server: PostgresqlProcess, slots: int, seed: int) -> Iterator[Rampage]:
    """A rampage whose service is ended at the end."""
    rampage = Rampage(folder, server, slots, seed)
    try:
        yield rampage
    finally:
        rampage.stop()
