"""A private PostgreSQL server that can be killed in mid-commit and started again on the same files."""

import contextlib
import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg

DATABASE = "postgres"


class KillablePostgresql:
    """Durable: what it has acknowledged is on the disk. Use it in `killable_postgresql`."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of its database."""
        return f"postgresql://bench@/{DATABASE}?host={self._folder}"

    def start(self) -> None:
        """Start it, which recovers what a kill left; returns when it answers."""
        settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self._folder}"]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", *settings],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=self._user,
            )
        deadline = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(f"host={self._folder} user=bench dbname={DATABASE}").close()
                return
            except psycopg.OperationalError:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "log").read_text()[-4000:]) from None
                time.sleep(0.1)

    def kill(self) -> None:
        """kill -9 of the server and all of its processes."""
        assert self._server is not None
        family = [psutil.Process(self._server.pid), *psutil.Process(self._server.pid).children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=30)
        self._server.wait(30)


@contextlib.contextmanager
def killable_postgresql(programs: Path) -> Iterator[KillablePostgresql]:
    """A running server in a temporary folder with a short name; nothing of it is left afterwards."""
    user = "postgres" if os.geteuid() == 0 else None  # root must not run a server
    owner = pwd.getpwnam(user or getpass.getuser())
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    flags = ["-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"]
    create: list[Path | str] = [programs / "initdb", *flags, "-D", folder / "data"]
    subprocess.run(create, check=True, capture_output=True, cwd=folder, user=user)
    server = KillablePostgresql(programs, folder, user)
    try:
        server.start()
        yield server
    finally:
        with contextlib.suppress(psutil.Error):
            server.kill()
        shutil.rmtree(folder)
