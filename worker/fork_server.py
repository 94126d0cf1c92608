"""Processes of attempts that need not import torch: each is forked from one that has, once on every machine.

    actor ──request──► fork server ──fork──► attempt     the server ends an attempt whose actor has gone; it ends with
      ▲                     │                   │        the raylet that its first actor came from, or when nobody has
      └──────how it ended───┴───────word────────┘        asked for long

Imports take an attempt seconds of a processor (`benchmarks/start_latency.py`), more than short trainings do. The server
has one thread and has done nothing but import, so that a forked process is like a fresh one: its memory, its random
numbers and its CUDA are its own. Only the fork is quicker.
"""

import contextlib
import ctypes
import fcntl
import gc
import hashlib
import importlib
import json
import logging
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import psutil

logger = logging.getLogger(__name__)

MODULES: Final = ("worker.attempt", "worker.run", "worker.models", "optim.catalog", "optim.adapm", "optim.closure_step")
"""The modules that every attempt imports; nearly all of the rest comes with them."""
MODELS: Final = ("transformers.models.gpt2.modeling_gpt2", "transformers.models.llama.modeling_llama")
"""The modules that most attempts import, after those they are built on."""
IDLE_SECONDS: Final = 600.0
"""A machine where no attempt has begun for so long gets its memory back."""
LOOK_SECONDS: Final = 1.0
"""The interval at which the server checks whether it is still needed."""
REQUEST_SECONDS: Final = 10.0
"""Whoever connects sends its request at once."""
LONGEST_ADDRESS: Final = 100
"""Bytes of a Unix socket's path; systems allow 104 or 108."""
PR_SET_PDEATHSIG: Final = 1
"""prctl(2)."""


class ForkServerError(Exception):
    """An attempt that could not be forked, with the reason; this process can carry it out."""


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """An attempt, as `worker.attempt.execute` takes it, and what its process is to be like."""

    service_url: str
    run_id: str
    attempt: int
    token: str
    gpus: int
    folder: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


def execute_in_fork(request: ForkRequest) -> str:
    """Carry out an attempt in a forked process and wait for its end: `worker.attempt.AttemptExit`'s value, or "lost: …"
    where the process died. SIGTERM goes to that process. Call it in the main thread. Raises `ForkServerError`."""
    try:
        return _ask(request)
    except ForkServerError:  # it has just ended; the next one is new
        return _ask(request)


def _ask(request: ForkRequest) -> str:
    try:
        with _connected_server() as connection, _relayed_sigterm() as relay:
            socket.send_fds(connection, [b"\n"], [1, 2])  # the attempt prints where this process would
            connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
            return _follow(connection, relay)
    except OSError as error:
        raise ForkServerError(f"no fork server: {error}") from error


def _follow(connection: socket.socket, relay: "_Relay") -> str:
    """Return the result of the attempt. A server that ends takes its attempts with it."""
    word: str | None = None
    began = False
    # A connection that breaks is like one that ends: the attempt must not be asked for again.
    with contextlib.suppress(ConnectionError), connection.makefile("rb") as lines:
        for line in lines:
            match json.loads(line):
                case {"process": int(process)}:
                    began = True
                    relay.to(process)
                case {"word": str(word)}:
                    pass
                case {"refused": str(reason)}:
                    raise ForkServerError(reason)
                case {"status": int(status)}:
                    relay.to(None)
                    end = f"exit code {status}" if status >= 0 else f"signal {-status} ({signal.Signals(-status).name})"
                    return word or f"lost: its process was killed or crashed: {end}"
    if not began:
        raise ForkServerError("the fork server ended")
    return word or "lost: the fork server ended, and the attempt with it"


class _Relay:
    """The target of SIGTERM; signals that come before it is known wait."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._is_due = False

    def to(self, process: int | None) -> None:
        """Send signals to this process from now on; None: to nobody."""
        self._process = process
        if process is not None and self._is_due:
            self._send(process)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM."""
        self._is_due = True
        if self._process is not None:
            self._send(self._process)

    @staticmethod
    def _send(process: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)


@contextlib.contextmanager
def _relayed_sigterm() -> Iterator[_Relay]:
    relay = _Relay()
    former = signal.signal(signal.SIGTERM, relay.receive)
    try:
        yield relay
    finally:
        signal.signal(signal.SIGTERM, former)


def _connected_server() -> socket.socket:
    """Return a connection to the server of this process's parent, which is started where there is none. Raises
    `OSError`."""
    if os.getppid() == 1:
        raise ProcessLookupError("what started this process has ended")
    address = _address()
    with _locked(address.parent):
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return _connect(address)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # NVML counts devices: where CUDA itself did, no forked process could use it. NumPy's library starts no threads.
        environment |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "worker.fork_server", str(address), str(os.getppid())]
        nothing = subprocess.DEVNULL
        # Errors go into this process's log: whoever ends all that writes in the folder of a dead Ray ends the server.
        subprocess.run(command, env=environment, stdin=nothing, stdout=nothing, check=False)
        return _connect(address)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock out other processes of this user that would start a server, within the block."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _connect(address: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(address))
    except OSError:
        connection.close()
        raise
    return connection


def _address() -> Path:
    """Return the socket of the server that this process would start: the same for all that have its parent, interpreter
    and path. Only our user reaches it. Raises `OSError` if somebody else's folder is in the way."""
    # Containers may share the folder, where the same number is another process.
    numbers = os.readlink("/proc/self/ns/pid") if sys.platform == "linux" else ""
    like = hashlib.sha256("\n".join([sys.executable, numbers, *sys.path]).encode()).hexdigest()[:16]
    name = f"adapm-bench-{os.getuid()}/{os.getppid()}-{like}.sock"
    address = Path(tempfile.gettempdir(), name)
    if len(bytes(address)) > LONGEST_ADDRESS:
        address = Path("/tmp", name)  # noqa: S108 - whose folder it is is looked at
    address.parent.mkdir(mode=0o700, exist_ok=True)
    status = address.parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"{address.parent} is not a folder of this user alone")
    return address


def main() -> None:
    """Listen, go to the background, import, serve."""
    address, owner = Path(sys.argv[1]), int(sys.argv[2])
    for socket_path in address.parent.glob(f"*-{address.name.rpartition('-')[2]}"):  # by servers that were killed
        if socket_path == address or not _is_alive(int(socket_path.name.partition("-")[0])):
            socket_path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(128)  # whoever connects from now on waits for the imports
    if os.fork():
        os._exit(0)  # Ray ends the children of its processes with them
    os.setsid()
    for name in MODULES:
        importlib.import_module(name)
    sys.modules["worker.families"].load_transformers()
    for name in MODELS:
        importlib.import_module(name)
    gc.freeze()  # no collection of an attempt's writes to the pages that all share
    _ForkServer(listener, address, owner).serve()


class _ForkServer:
    """A thread that waits: for requests, for the ends of attempts and of their actors."""

    def __init__(self, listener: socket.socket, address: Path, owner: int) -> None:
        self._listener, self._address, self._owner = listener, address, owner
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, socket.socket] = {}
        """Process of an attempt → the connection to its actor."""
        self._is_open = True
        self._asked_at = time.monotonic()

    def serve(self) -> None:
        """Serve until the owner has ended, or nobody is left to wait for."""
        ends, waker = os.pipe()
        os.set_blocking(ends, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal without a handler wakes nobody
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(ends, selectors.EVENT_READ)
        while _is_alive(self._owner) and (self._is_open or self._children):
            ready = [key.fileobj for key, _ in self._selector.select(LOOK_SECONDS)]
            if ends in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(ends, 4096)
            self._reap()
            for process in [process for process, connection in self._children.items() if connection in ready]:
                self._end(process)
            if self._is_open and self._listener in ready:
                self._accept()
            if self._is_open and not self._children and time.monotonic() - self._asked_at > IDLE_SECONDS:
                self._close()
        for process in self._children:
            self._end(process)
        if self._is_open:
            self._close()

    def _accept(self) -> None:
        self._asked_at = time.monotonic()
        connection, _ = self._listener.accept()
        outputs: list[int] = []
        try:
            connection.settimeout(REQUEST_SECONDS)
            _, outputs, _, _ = socket.recv_fds(connection, 1, 2)
            with connection.makefile("rb") as lines:
                request = ForkRequest(**json.loads(lines.readline()))
            connection.settimeout(None)
            server = os.getpid()
            process = os.fork()
            if process == 0:
                # It ends with its parent, if the system can: a process that nobody ends would train on for nobody. Its
                # heartbeats are refused anyway.
                with contextlib.suppress(OSError, AttributeError):
                    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != server:  # it ended before it was asked to take this one with it
                    os._exit(1)
                self._become(request, connection, outputs)
        except (OSError, ValueError, TypeError) as error:
            _send(connection, refused=str(error))
            connection.close()
            return
        finally:
            for output in outputs:
                os.close(output)
        self._children[process] = connection
        self._selector.register(connection, selectors.EVENT_READ)
        _send(connection, process=process)

    def _become(self, request: ForkRequest, connection: socket.socket, outputs: list[int]) -> None:
        """Carry out the attempt in this process, a new one, and end."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            self._listener.close()
            for child in self._children.values():
                child.close()
            for output, descriptor in zip(outputs, (1, 2), strict=True):
                os.dup2(output, descriptor)
            os.environ.clear()
            os.environ.update(request.environment)
            os.chdir(request.folder)
            if request.gpus and sys.modules["torch"].cuda._is_in_bad_fork():
                _send(connection, refused="CUDA was begun by an import: a forked process cannot use it")
            else:
                _send(connection, word=_execute(request))
            status = 0
        except BaseException:
            logger.exception("run %s, attempt %d: broke down", request.run_id, request.attempt)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        while self._children:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            connection = self._children.pop(process)
            self._forget(connection)
            _send(connection, status=os.waitstatus_to_exitcode(status))
            connection.close()

    def _end(self, process: int) -> None:
        """End the child: its actor has gone, or the server ends."""
        self._forget(self._children[process])
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def _forget(self, waited_for: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(waited_for)

    def _close(self) -> None:
        """Take no more requests: whoever comes next starts another server."""
        self._is_open = False
        self._forget(self._listener)
        self._address.unlink(missing_ok=True)
        self._listener.close()


def _execute(request: ForkRequest) -> str:
    from worker.attempt import execute

    return execute(request.service_url, request.run_id, request.attempt, request.token)


def _send(connection: socket.socket, **fields: Any) -> None:
    with contextlib.suppress(OSError):  # its actor has gone
        connection.sendall(json.dumps(fields).encode() + b"\n")


def _is_alive(process: int) -> bool:
    """Return whether it runs; what has ended and was not waited for by its parent does not."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    main()
