"""`Database`: one SQL database behind two doors, `reading()` and `writing()`.

    with database.writing() as connection:      one transaction, on disk when the block ends
    with database.reading() as connection:      one consistent snapshot that never waits for a writer

SQLite (WAL mode) takes one writer at a time: threads of this process queue at a lock, other processes at SQLite's own
(threads that race for SQLite's lock sleep and try again, and some wait long). PostgreSQL takes row locks.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

from orchestrator.errors import DiskFullError, StoreError

DAY_SECONDS = 86_400.0
BUSY_TIMEOUT_SECONDS = 30.0
"""The time that a writer waits for a writer of another process before it gives up."""
MIGRATION_LOCK = 0x_ADA9_BE4C
"""The PostgreSQL advisory lock that keeps two processes from migrating at once; any constant will do."""
OUR_FAULT = (IntegrityError, ProgrammingError, DataError, NotSupportedError)
"""Database errors that mean a fault in our statements, not a database that cannot be used."""
MAX_TEXT = 4_000
"""Reasons and messages are cut here; a log is the place for more."""
FULL_SECONDS = 1.0
"""The time for which a full disk is assumed to stay full."""
SQLITE_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
POSTGRESQL_FULL = frozenset({"53100"})
"""Codes of a database whose disk has no room."""
SQLITE_NO_RIGHTS = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
"""Codes, in their lowest byte, of a file that this process may not write or open."""
_TOUCH = sa.text("UPDATE change_counters SET value = value WHERE shard = 0")


class _DatabaseClock(FunctionElement[float]):
    """Seconds since 1970 on the clock of the database server; see `db_now`."""

    type = sa.Double()
    inherit_cache = True


@compiles(_DatabaseClock, "sqlite")
def _sqlite_clock(_element: _DatabaseClock, _compiler: SQLCompiler, **_options: Any) -> str:
    # `unixepoch('subsec')` needs SQLite 3.42; 2440587.5 is the Julian day of 1970-01-01.
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(_DatabaseClock, "postgresql")
def _postgresql_clock(_element: _DatabaseClock, _compiler: SQLCompiler, **_options: Any) -> str:
    # clock_timestamp() and not now(): a transaction that waited for a lock must not live in the past.
    return "extract(epoch from clock_timestamp())::double precision"


def db_now() -> ColumnElement[float]:
    """Return the seconds since 1970 on the database's clock: the only clock that leases are measured by."""
    return _DatabaseClock()


class Database:
    """A SQLite file or a PostgreSQL database. Thread-safe.

    `url` is `sqlite:///<file>` or `postgresql://<user>@<host>/<database>`; raises `StoreError` for anything else.
    """

    def __init__(self, url: str, *, clock_offset_seconds: float = 0.0) -> None:
        self.clock_offset_seconds = clock_offset_seconds
        """Added to the database's clock; tests move time with it."""
        offset = sa.bindparam("clock_offset", callable_=lambda: self.clock_offset_seconds, type_=sa.Double, unique=True)
        self._now: ColumnElement[float] = db_now() + offset
        self._clock = sa.select(self._now)
        self._engine = _engine(url)
        self._full_since: float | None = None
        """When, on the monotonic clock, a write last found no room; None once one has found it."""
        self._sqlite = self._engine.dialect.name == "sqlite"
        self._writer_lock: AbstractContextManager[Any] = threading.Lock() if self._sqlite else nullcontext()

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    def now(self) -> ColumnElement[float]:
        """Return the database's clock as an expression, for use in a statement that may be kept and executed again."""
        return self._now

    def has_come(self, moment: ColumnElement[float], longest_seconds: float) -> ColumnElement[bool]:
        """Return whether a moment that was set at most so long ahead has come.

        One that lies further ahead was set before the clock stepped back, as it does where it was wrong: who waited
        for it would wait for as long as it was wrong by.
        """
        return sa.or_(moment <= self._now, moment > self._now + longest_seconds)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read-only transaction: all reads are of the same moment. Raises `StoreError`."""
        with self._store_errors(), self._engine.connect() as connection:
            if not self._sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                if self._sqlite:
                    connection.exec_driver_sql("BEGIN")
                yield connection

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Connection]:
        """Yield a transaction that commits when the block ends and rolls back when it raises. Raises `StoreError`.

        `durable`: the commit is on disk before the block's end is reached. Without it a power cut may take back the
        last moments (never consistency), and so may the crash of PostgreSQL: right for heartbeats, which come again.
        """
        try:
            with self._store_errors(), self._writer_lock, self._engine.begin() as connection:
                if self._sqlite:
                    # The level can only change between transactions; a connection comes from a pool and keeps the one
                    # it had. A listener to SQLAlchemy's `begin` would cost each statement a round of listeners.
                    level = "FULL" if durable else "NORMAL"
                    if connection.info.get("bench_synchronous") != level:
                        connection.exec_driver_sql(f"PRAGMA synchronous = {level}")
                        connection.info["bench_synchronous"] = level
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                elif not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection
        except DiskFullError:
            self._full_since = time.monotonic()
            raise
        self._full_since = None

    def is_full(self) -> bool:
        """Return whether the last write found no room on the database's disk; looked at anew once a second at most."""
        if self._full_since is not None and time.monotonic() - self._full_since >= FULL_SECONDS:
            with suppress(StoreError), self.writing(durable=False) as connection:
                connection.execute(_TOUCH)
        return self._full_since is not None

    def read_clock(self, connection: Connection) -> float:
        """Return the seconds since 1970 on the database's clock, now: ask after a lock was waited for, not before."""
        return float(connection.execute(self._clock).scalar_one())

    def migrate(self) -> None:
        """Bring the schema to this version's; changes nothing if it is there already. Raises `StoreError`, also
        where nothing could be written later."""
        with self.reading() as connection:  # nearly every start finds the newest schema, and needs no alembic
            is_there = sa.inspect(connection).has_table("alembic_version")
            query = "SELECT version_num FROM alembic_version"
            revisions = connection.exec_driver_sql(query).scalars().all() if is_there else ()
        if list(revisions) == [newest_migration()]:
            with suppress(DiskFullError), self.writing(durable=False) as connection:  # room may come
                connection.execute(_TOUCH)
            return
        from orchestrator.store import migrations  # alembic is slow to import and needed only here

        with self.writing() as connection:
            if not self._sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            migrations.migrate(connection)

    def check(self) -> None:
        """Raise `StoreError` unless the database answers and has our schema."""
        with self.reading() as connection:
            if not sa.inspect(connection).has_table("runs"):
                raise StoreError("the database has no tables yet; `Database.migrate()` makes them")

    def close(self) -> None:
        """Give back every connection."""
        self._engine.dispose()

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Turn a database that cannot be used into `StoreError`; leave the faults of our own statements as they are."""
        try:
            yield
        except OUR_FAULT:
            raise
        except (DBAPIError, PoolTimeoutError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            sqlite_code, state = getattr(cause, "sqlite_errorcode", 0), getattr(cause, "sqlstate", None)
            if sqlite_code in SQLITE_FULL or state in POSTGRESQL_FULL:
                raise DiskFullError(
                    f"the database has no room, and nothing was stored: {cause}; make room on its disk, then ask again"
                ) from error
            if self._sqlite and sqlite_code & 0xFF in SQLITE_NO_RIGHTS:
                raise StoreError(
                    f"the database {self._engine.url.database} cannot be used: {cause}; let this user write in its "
                    "folder, which must exist, and to all files of that name, or choose another folder with --data"
                ) from error
            raise StoreError(f"the database cannot be used: {cause}") from error


def insert(connection: Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that knows ON CONFLICT, which SQLAlchemy has for each kind of database apart."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def plain_text(text: str | None) -> str | None:
    """Return text as both databases can keep it: bounded, without the NUL that PostgreSQL refuses."""
    return None if text is None else text.replace("\x00", "\ufffd")[:MAX_TEXT]


def newest_migration() -> str:
    """Return the revision in the name of the last migration's file: r0002 of `r0002_labels.py`."""
    names = sorted(path.name for path in (Path(__file__).parent / "migrations" / "versions").glob("r*.py"))
    return names[-1].partition("_")[0]


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # The URL itself is not shown: it may hold a password.
        raise StoreError("cannot read the database URL; use sqlite:///<file> or postgresql://…") from error
    kind = parsed.get_backend_name()
    # The pool is as wide as the web server's thread pool: SQLite's readers never wait for one another in WAL mode.
    pool: dict[str, Any] = {"pool_size": 8, "max_overflow": 56}
    if kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
        arguments = {"timeout": BUSY_TIMEOUT_SECONDS, "isolation_level": None}
        engine = sa.create_engine(parsed, connect_args=arguments, **pool)
        sa.event.listen(engine, "connect", _prepare_sqlite)
        return engine
    if kind in ("postgresql", "postgres"):
        try:
            return sa.create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, **pool)
        except ModuleNotFoundError as error:
            way_out = "in the project's folder: pip install '.[postgres]'"
            raise StoreError(f"PostgreSQL needs the driver; {way_out}") from error
    shown = parsed.render_as_string(hide_password=True)
    raise StoreError(f"cannot keep experiments in {shown!r}; use sqlite:///<file> or postgresql://…")


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # A query would fail as a whole where one row's text is no UTF-8; `integrity.py` refuses what is none.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
