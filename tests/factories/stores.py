"""Databases for tests (SQLite files, a private throw-away PostgreSQL server), and the specs and results put in them."""

import ctypes
import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil
import psycopg
import pytest

from orchestrator.jobs import Lease
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store.database import Database
from orchestrator.store.queue.capacity import FreeCapacity, Node, NodeId
from orchestrator.store.queue.queue import Queue
from orchestrator.store.tables import change_counters, metadata
from worker.records.protocol import PointsBatch
from worker.records.result import Environment, MemoryBreakdown, PeakMemory, Point, Result, Verdict
from worker.spec.run import Budget, Resources, Workload

DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))
PR_SET_PDEATHSIG = 1
"""The number of linux/prctl.h."""


def comparison_spec(
    *,
    name: str = "a comparison",
    optimizers: Sequence[str] = ("adamw",),
    learning_rates: Sequence[float] = (1e-3,),
    seeds: Sequence[int] = (1, 2),
    steps: int = 10,
    cpus: int = 1,
    gpus: int = 0,
    tuning: Tuning | None = None,
) -> ComparisonSpec:
    """A small comparison; the defaults make two runs of ten steps."""
    return ComparisonSpec(
        name=name,
        workload=Workload(model="gpt2-tiny", budget=Budget(steps=steps)),
        candidates=tuple(Candidate(optimizer=name, learning_rates=tuple(learning_rates)) for name in optimizers),
        seeds=tuple(seeds),
        resources=Resources(cpus=cpus, gpus=gpus),
        tuning=tuning,
    )


def result(
    *,
    final_val_loss: float | None = 2.5,
    verdict: Verdict = Verdict.CONVERGED,
    steps: int = 10,
    device_seconds: float = 4.0,
    host_rss_bytes: int = 500_000_000,
    allocator_bytes: int | None = None,
    peak_bytes: int | None = None,
    device: str = "cpu",
) -> Result:
    """A result of a tiny run; with a breakdown of its memory where `peak_bytes` is given."""
    return Result(
        verdict=verdict,
        verdict_reason="The loss fell.",
        steps=steps,
        tokens=steps * 1024,
        initial_val_loss=5.6,
        final_val_loss=final_val_loss,
        final_train_loss=final_val_loss,
        parameters=1_000_000,
        parameter_bytes=4_000_000,
        optimizer_state_bytes=8_000_000,
        peak_memory=PeakMemory(
            host_rss_bytes=host_rss_bytes, host_rss_before_bytes=300_000_000, allocator_bytes=allocator_bytes
        ),
        memory_breakdown=None
        if peak_bytes is None
        else MemoryBreakdown(
            step=2,
            phase="backward",
            micro_batch_sequences=8,
            peak_bytes=peak_bytes,
            parameters_bytes=4_000_000,
            gradients_bytes=4_000_000,
            optimizer_state_bytes=8_000_000,
            activations_bytes=peak_bytes - 16_000_000,
            other_bytes=0,
        ),
        step_seconds_median=0.05,
        optimizer_seconds_median=0.002,
        tokens_per_second=20_000.0,
        device_seconds=device_seconds,
        spec_hash="spec",
        data_hash="data",
        environment=Environment(
            device=device,
            device_name="H200" if device == "cuda" else "processor",
            host="here",
            threads=1,
            python="3.11",
            torch="2.13",
            transformers="5.23",
            platform="Linux",
        ),
    )


def claim(queue: Queue, *, cpus: int, limit: int, gpus: int = 0) -> tuple[Lease, ...]:
    """Do one round of the dispatcher: queue the follow-ups, then claim for a cluster of one node with that capacity."""
    FollowUps(queue._database).follow()
    room = FreeCapacity([Node(id=NodeId("here"), cpus=cpus, gpus=gpus)])
    return tuple(lease for lease, _ in queue.claim(room, limit))


def batch(sequence: int, steps: Sequence[int], loss: float = 3.0) -> PointsBatch:
    """A batch with one point for each of the steps."""
    points = tuple(Point(step=step, tokens=step * 1024, train_loss=loss, step_seconds=0.05) for step in steps)
    return PointsBatch.from_points(sequence=sequence, points=points)


@contextmanager
def sqlite_database(folder: Path) -> Iterator[Database]:
    """Yield a migrated SQLite database in a file of that folder, the same one where there is one."""
    path = folder / "bench.sqlite3"
    if not path.exists():
        path.write_bytes(_migrated())
    with closing(Database(f"sqlite:///{path}")) as database:
        yield database


@contextmanager
def requested_database(request: pytest.FixtureRequest, folder: Path) -> Iterator[Database]:
    """Yield a migrated database of the kind that is the fixture's parameter: one of `DATABASES`."""
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        with server.database() as database:
            yield database
    else:
        with sqlite_database(folder) as database:
            yield database


@cache
def _migrated() -> bytes:
    """An empty database, migrated once: ten times as fast to copy as to migrate."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.sqlite3"
        with closing(Database(f"sqlite:///{path}")) as database:
            database.migrate()
        return path.read_bytes()


def postgresql_programs() -> Path | None:
    """The folder of PostgreSQL's server programs, the newest version; None if they are not installed."""
    folders = [Path(initdb).parent for initdb in [shutil.which("initdb")] if initdb]
    folders += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True
    )
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def require_postgresql() -> Path:
    """The folder of `postgresql_programs`; skips the test where there is none."""
    programs = postgresql_programs()
    if programs is None:
        pytest.skip("install PostgreSQL's server programs (apt-get install postgresql)")
    return programs


class PostgresqlServer:
    """A running server on a Unix socket, with one migrated database that is emptied for each test."""

    def __init__(self, socket_folder: Path) -> None:
        self.socket_folder = socket_folder
        self._count = 0
        self._migrated = self.create_database()
        with self.open(self._migrated) as database:
            database.migrate()

    def url(self, name: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://bench@/{name}?host={self.socket_folder}"

    def create_database(self) -> str:
        """The name of a new database without tables."""
        self._count += 1
        name = f"test_{self._count}"
        with psycopg.connect(f"host={self.socket_folder} user=bench dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    @contextmanager
    def open(self, name: str) -> Iterator[Database]:
        """Yield one of its databases, closed afterwards."""
        with closing(Database(self.url(name))) as database:
            yield database

    @contextmanager
    def database(self) -> Iterator[Database]:
        """The migrated database, emptied: a new one would take a second, since dropping forces a checkpoint.

        The few rows of each table are deleted, their numbers begin anew, and no trigger hears of it: TRUNCATE makes new
        files for every table and index, which takes four times as long.
        """
        tables = [table.name for table in metadata.sorted_tables if table is not change_counters]
        with self.open(self._migrated) as database:
            with database.writing() as connection:
                numbers = connection.exec_driver_sql("SELECT sequencename FROM pg_sequences").scalars().all()
                statements = [
                    "SET LOCAL session_replication_role = replica",
                    *(f"DELETE FROM {name}" for name in tables),
                    *(f"ALTER SEQUENCE {name} RESTART" for name in numbers),
                ]
                connection.exec_driver_sql("; ".join(statements))
            yield database


class PostgresqlProcess:
    """A private server on a Unix socket, without a network, that can be killed and started again on the same files."""

    def __init__(self, programs: Path, folder: Path, user: str | None, options: dict[str, object]) -> None:
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self._command: list[Path | str] = [programs / "postgres", "-D", folder / "data", *settings]
        self.folder, self._user = folder, user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of a database without tables."""
        return f"postgresql://bench@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, which recovers what a kill left; returns when it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self.folder, user=self._user, preexec_fn=_die_with_parent
            )
        deadline = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(f"host={self.folder} user=bench dbname=postgres").close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()[-4000:]) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the server and all of its processes."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        family = [server, *server.children(recursive=True)]
        for process in family:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=30)
        self._process.wait(30)

    def stop(self) -> None:
        """End it at once: nothing of it is kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)


@contextmanager
def postgresql_process(programs: Path, *, durable: bool = True) -> Iterator[PostgresqlProcess]:
    """A running server in a temporary folder; nothing of it is left afterwards.

    Only a `durable` one forces what it commits to disk: most tests need not, crashes and measurements must.
    """
    # A short path: a Unix socket's name may have 107 characters. Root must not run a server, so it becomes `postgres`;
    # without root, "become myself" is refused too: then nothing is changed.
    user = "postgres" if os.geteuid() == 0 else None
    owner = pwd.getpwnam(user or getpass.getuser())
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    flags = ["-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    create: list[Path | str] = [programs / "initdb", *flags, "-D", folder / "data"]
    subprocess.run(create, check=True, capture_output=True, cwd=folder, user=user)
    options: dict[str, object] = {"listen_addresses": "", "unix_socket_directories": folder}
    options |= {} if durable else {"fsync": "off", "full_page_writes": "off"}
    server = PostgresqlProcess(programs, folder, user, options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _die_with_parent() -> None:
    """Linux: end this process when its parent is gone, so that a killed test run leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


@contextmanager
def postgresql_server(programs: Path, *, durable: bool = False) -> Iterator[PostgresqlServer]:
    """A running server for the databases of many tests."""
    with postgresql_process(programs, durable=durable) as process:
        yield PostgresqlServer(process.folder)
