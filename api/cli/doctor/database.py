"""What the doctor sees of the database: whether it answers, takes a write, has our schema, and agrees on the time."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from api.cli.doctor.check import Check, fails, notice, passes
from api.cli.doctor.machine import file_system, is_network_file_system
from orchestrator.errors import StoreError
from orchestrator.settings import Settings
from orchestrator.store import migrations
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database

LOCK_SECONDS = 3.0
"""A writer of ours holds SQLite's lock for some milliseconds."""
CONNECT_SECONDS = 5
WORST_SKEW_SECONDS = 5.0
"""Leases are counted by the database's clock alone; above this, what pages and logs tell of one event falls apart."""

WAYS_OUT = {
    "no space left": "free space on the database server's disk",
    "database or disk is full": "free space on this disk, or raise this user's quota",
    "disk i/o error": "look at the disk: it may be full, over its quota, or damaged",
    "file is not a database": "move that file away, or restore a backup: `adapm-bench db backup` makes them",
    "malformed": "restore a backup; `adapm-bench db check` names what is damaged",
    "readonly": "let this user write the file, its folder, and the -wal and -shm files beside it",
    "read-only": "use the primary server, and a role that may write",
    "locked": "another process has locked the database: stop it, or close the program that reads the file",
    "unable to open": "make the folder of the file, and let this user write it",
    "permission denied": "let this user write the file and its folder; in PostgreSQL: GRANT what is missing",
    "password authentication failed": "put the right password into ADAPM_BENCH_DATABASE_URL, or into its secret's file",
    "no password supplied": "put the password into ADAPM_BENCH_DATABASE_URL, or into its secret's file",
    "does not exist": "make it (`createuser`, `createdb --owner`), or correct ADAPM_BENCH_DATABASE_URL",
    "too many clients": "raise max_connections, or run fewer processes of the api",
    "timeout": "let this machine through the firewall, or correct the host in ADAPM_BENCH_DATABASE_URL",
    "connection refused": "start the server, or correct host and port in ADAPM_BENCH_DATABASE_URL",
    "no such file": "start the server, or correct the host in ADAPM_BENCH_DATABASE_URL",
    "resolve": "correct the host in ADAPM_BENCH_DATABASE_URL: no machine has that name",
    "name or service not known": "correct the host in ADAPM_BENCH_DATABASE_URL: no machine has that name",
    "needs the driver": "in the project's folder: pip install '.[postgres]'",
    "cannot keep experiments": "set ADAPM_BENCH_DATABASE_URL to sqlite:///<file> or postgresql://…, or unset it",
}
"""What databases say when something is wrong, in small letters, and what mends it; the first that fits."""


def database(settings: Settings) -> Iterator[Check]:
    """The database, its schema and its clock; where it cannot be used, only why."""
    name, text = "database", settings.resolved_database_url()
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        yield fails(name, "no database URL", "set ADAPM_BENCH_DATABASE_URL to postgresql://…, or unset it")
        return
    if url.get_backend_name() == "sqlite":
        yield from _sqlite(url, text)
    else:
        yield from _server(url)


def _sqlite(url: URL, text: str) -> Iterator[Check]:
    name, file = "database", Path(url.database or "")
    if not file.exists():
        yield passes(name, f"{file} (`adapm-bench up` will make it)")
        return
    kind = file_system(file)
    if (fault := _write_error(file)) is not None:
        yield fails(name, f"{file} ({kind}): {fault}", hint(fault))
        return
    if is_network_file_system(kind):
        better = "SQLite's journal is for the processes of one machine: use PostgreSQL, or a local disk"
        yield notice(name, f"{file} lies on {kind}, which other machines share", better)
    else:
        yield passes(name, f"{file}, takes writes")
    yield from _schema_checks(text)


def _write_error(file: Path) -> str | None:
    """Why a transaction cannot be committed: a real one that changes nothing is."""
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {version:d}")
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        return str(error)
    return None


def _server(url: URL) -> Iterator[Check]:
    name, shown = "database", url.render_as_string(hide_password=True)
    bounded = url.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})
    text = bounded.render_as_string(hide_password=False)
    try:
        with contextlib.closing(Database(text)) as store, store.writing() as connection:
            connection.exec_driver_sql("CREATE TEMPORARY TABLE adapm_bench_doctor (looked integer) ON COMMIT DROP")
            version = connection.exec_driver_sql("SHOW server_version").scalar_one()
    except Exception as error:  # noqa: BLE001 - psycopg has classes for every state of a server
        fault = _first_line(error)
        yield fails(name, f"{shown}: {fault}", hint(fault))
        return
    yield passes(name, f"{shown}, PostgreSQL {version}, takes writes")
    yield from _schema_checks(text)


def _schema_checks(text: str) -> Iterator[Check]:
    with contextlib.closing(Database(text)) as store:
        yield schema(store)
        if store.dialect != "sqlite":  # a file has this machine's clock
            yield clock(store)


def schema(store: Database) -> Check:
    """Whether the tables are those of this version."""
    name = "schema"
    try:
        current, newest = maintenance.revision(store)
    except StoreError as error:
        return fails(name, str(error), hint(str(error)))
    if current == newest:
        return passes(name, f"{current}, the newest")
    if current is None:
        return fails(name, "the database has no tables yet", "adapm-bench db upgrade")
    if (unknown := migrations.unknown_schema(current)) is not None:
        return fails(name, *unknown)
    way = "adapm-bench db backup FILE, then adapm-bench db upgrade; `adapm-bench up` does the second by itself"
    return fails(name, f"{current}, behind this version's {newest}", way)


def clock(store: Database) -> Check:
    """How far this machine's clock is from the database's, less what asking took."""
    name = "clock"
    with store.reading() as connection:
        before = time.time()
        theirs = store.read_clock(connection)
        after = time.time()
    skew = theirs - (before + after) / 2
    unsure = (after - before) / 2
    if abs(skew) - unsure <= WORST_SKEW_SECONDS:
        return passes(name, f"{abs(skew):.2f} s from the database's")
    found = f"{abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the database's"
    return fails(name, found, "let NTP set both: timedatectl set-ntp true")


def hint(fault: str) -> str:
    """What mends a fault, by the words that databases have for it."""
    small = fault.lower()
    return next(
        (way for words, way in WAYS_OUT.items() if words in small),
        "see docs/reference/settings.md and the server's log",
    )


def _first_line(error: Exception) -> str:
    """What the server said, without the statement and without where SQLAlchemy explains it."""
    said = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
