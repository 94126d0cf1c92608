"""The embedded service: starts the api and the dispatcher as processes, restarts what dies, stops both in order.

adapm-bench up ── supervisor ──► api process         (inherits the listening socket: a restart loses no connection)
                     │     └───► dispatcher process  (embedded Ray, MLflow export)
                     └ each child watches its standard input: it ends when the supervisor does, however that ends
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from api.auth.client_key import KEY_FILE_VARIABLE, KEY_VARIABLE
from api.processes.address import ServiceError, answers, listen, require_keys
from api.processes.data_folder import keep_private, lock_data_folder, remove_note, umask_of, write_note
from orchestrator.dispatch.disk import ROOM_SECONDS, lack_of_room, shortage, wait_for_room
from orchestrator.dispatch.ray_session import end_leftovers
from orchestrator.errors import OrchestratorError
from orchestrator.settings import Settings
from orchestrator.store.admin.keyring import Keyring
from orchestrator.store.database import Database
from worker.repeating import Repeating

READY_SECONDS = 60.0
GOOD_SECONDS = 60.0
"""A process that lived this long had started well; its end says nothing about the next start."""
MAX_CRASHES = 4
BACKOFF_SECONDS = (0.0, 2.0, 5.0)
"""Pause before the second, third and fourth start in a row."""
MOST_LOG_BYTES = 20 * 2**20
OLDER_LOGS = 3
STOP_SECONDS = {"api": 8.0, "dispatcher": 30.0}
"""The time to stop."""

ON_THIS_MACHINE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not listened on
"""The address by which this machine reaches a service that listens on all of its addresses."""


@dataclass
class _Child:
    name: str
    command: list[str]
    pass_fds: tuple[int, ...]
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_after: float = 0.0
    crashes: int = 0


class Supervisor:
    """The embedded service as a context: on entering it answers, on leaving everything that it started has ended."""

    def __init__(self, settings: Settings) -> None:
        """News for people are printed; a full disk is reported on standard error."""
        self._settings = settings
        self._reported_shortage: str | None = None
        self._disk_looked_at = -ROOM_SECONDS
        self._folder = settings.data_folder.absolute()
        self._failure: str | None = None
        self._children: list[_Child] = []
        self.url = ""

    def __enter__(self) -> Self:
        with umask_of(self._settings.umask_bits()):
            return self._begin()

    def _begin(self) -> Self:
        never = threading.Event()  # Ctrl-C ends the waiting
        wait_for_room(self._settings.folders_on_disk(), self._report_shortage, never)
        self._report_shortage(None)
        self._lock = lock_data_folder(self._folder, self._say)
        try:
            keep_private(self._folder, self._settings.umask_bits())
            # Migrated here, so that a database which cannot be used is one error and not a process that keeps ending.
            with closing(Database(self._settings.resolved_database_url())) as database:
                database.migrate()
                require_keys(self._settings, Keyring(database))
            end_leftovers(self._folder)
            self._socket = listen(self._settings.host, self._settings.port)
        except OrchestratorError:
            os.close(self._lock)
            raise
        host, port = self._socket.getsockname()[:2]
        host = ON_THIS_MACHINE.get(host, host)
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        # One service at a time has the data folder, so that its name tells a dispatcher that is started again.
        dispatcher = ["--service-url", self.url, "--name", f"{socket.gethostname()}:{self._folder}"]
        if self._settings.ray_address:
            dispatcher += ["--ray-address", self._settings.ray_address]
        descriptor = self._socket.fileno()
        self._children = [
            self._child("api", "--socket", str(descriptor), pass_fds=(descriptor, self._lock)),
            self._child("dispatcher", *dispatcher, pass_fds=(self._lock,)),
        ]
        for child in self._children:
            self._start(child)
        self._watcher = Repeating("supervisor", 0.2, self._watch)
        self._watcher.start()
        deadline = time.monotonic() + READY_SECONDS
        try:
            self.check()
            while not answers(self.url):
                if time.monotonic() > deadline:
                    logs = self._folder / "logs"
                    raise ServiceError(f"the service did not answer within {READY_SECONDS:.0f} s; see {logs}")
                time.sleep(0.1)
                self.check()
        except BaseException:
            self.stop()
            raise
        write_note(self._folder, self.url)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def check(self) -> None:
        """Raise `ServiceError` if the service has failed."""
        if self._failure is not None:
            raise ServiceError(self._failure)

    def stop(self) -> None:
        """End every process that was started: the dispatcher first, because its workers still report to the api."""
        self._watcher.stop()
        remove_note(self._folder)
        for child in reversed(self._children):
            self._end(child, STOP_SECONDS[child.name])
        self._end_ray()
        self._socket.close()
        os.close(self._lock)

    def _say(self, sentence: str) -> None:
        with suppress(OSError):  # they may go into a file on the disk that is full
            print(sentence)

    def _report_shortage(self, reason: str | None) -> None:
        """Say on standard error why the service waits, and that it goes on."""
        old_reason, self._reported_shortage = self._reported_shortage, reason
        if (reason is None) is not (old_reason is None):
            with suppress(OSError):
                print(reason or "there is room again: the service goes on", file=sys.stderr, flush=True)

    def _child(self, name: str, *arguments: str, pass_fds: tuple[int, ...]) -> _Child:
        logs = self._folder / "logs"
        logs.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "api.cli", name, *arguments, "--data", str(self._folder), "--watch-stdin"]
        return _Child(name=name, command=command, pass_fds=pass_fds, log_path=logs / f"{name}.log")

    def _start(self, child: _Child) -> None:
        with child.log_path.open("ab") as log:
            child.process = subprocess.Popen(
                child.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=child.pass_fds,
                env=children_environment(self._settings),
                # A group of its own: Ctrl-C reaches the supervisor alone, which stops its children in order.
                start_new_session=True,
            )
        child.started_at = time.monotonic()

    def _watch(self) -> None:
        """Restart what ended, and look at the disk and the logs."""
        if time.monotonic() - self._disk_looked_at >= ROOM_SECONDS:
            self._report_shortage(shortage(self._folder, self._settings.free_bytes))
            self._disk_looked_at = time.monotonic()
        for child in self._children:
            with suppress(OSError):  # a full disk must not end the supervision
                rotate(child.log_path)
            if child.process is not None and child.process.poll() is not None:
                self._note_end(child, child.process.returncode)
            elif child.process is None and self._failure is None and time.monotonic() >= child.start_after:
                try:
                    self._start(child)
                except OSError as error:  # no memory for a process, no room for its log
                    self._say(f"the {child.name} process cannot be started, trying again: {error}")
                    child.start_after = time.monotonic() + BACKOFF_SECONDS[-1]

    def _note_end(self, child: _Child, status: int) -> None:
        """Plan the next start of a child that ended, or give up. An end on a full disk does not count as a crash, for
        as long as that takes."""
        now = time.monotonic()
        _close_input(child)
        if child.name == "dispatcher":
            self._end_ray()
        if reason := lack_of_room(self._settings.folders_on_disk()):
            self._report_shortage(reason)
            child.crashes, child.start_after = 0, now + BACKOFF_SECONDS[-1]
            self._say(f"the {child.name} process ended with status {status}; starting it again in a while")
            return
        child.crashes = child.crashes + 1 if now - child.started_at < GOOD_SECONDS else 1
        if child.crashes >= MAX_CRASHES:
            self._failure = (
                f"the {child.name} process ended {child.crashes} times in a row, the last time with status {status}; "
                f"its log says why: {child.log_path}"
            )
            return
        child.start_after = now + BACKOFF_SECONDS[child.crashes - 1]
        self._say(f"the {child.name} process ended with status {status}; starting it again")

    def _end_ray(self) -> None:
        """End the Ray of a killed dispatcher, before the next dispatcher starts."""
        try:
            end_leftovers(self._folder)
        except OrchestratorError as error:
            self._say(str(error))

    @staticmethod
    def _end(child: _Child, seconds: float) -> None:
        process = child.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _close_input(child)


def _close_input(child: _Child) -> None:
    """Close the standard input of a process that has ended, and forget it."""
    if child.process is not None and child.process.stdin is not None:
        child.process.stdin.close()
    child.process = None


def children_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of the service's processes: this process's, with the flags over it.

    A caller's own key is nothing for the service, and even less for the trainings that it starts.
    """
    inherited = {name: text for name, text in os.environ.items() if name not in (KEY_VARIABLE, KEY_FILE_VARIABLE)}
    inherited["ADAPM_BENCH_HOST"] = settings.host  # that of the socket: the api asks for keys, and answers to its name
    if settings.slots:
        inherited["ADAPM_BENCH_SLOTS"] = str(settings.slots)
    return inherited


def rotate(path: Path, most_bytes: int = MOST_LOG_BYTES, kept: int = OLDER_LOGS) -> None:
    """Move the lines of a file that is too long to `<name>.1`, the earlier ones to `<name>.2`, and so on.

    Its writers hold it open as standard error, for appending, so that tracebacks and the words of libraries are caught,
    too; so it is copied and emptied, not renamed. Lines written in that millisecond may be lost.
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
