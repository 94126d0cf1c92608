"""Keeping a database: its schema's revision, whether it is sound, a copy while it is in use.

SQLite copies itself. A backup of PostgreSQL is `pg_dump`'s, which is called where it is installed.
"""

import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url

from orchestrator.columns import FIELDS
from orchestrator.errors import DamagedError, StoreError
from orchestrator.jobs import LIVE, TERMINAL, RunStatus
from orchestrator.store import external_runs, integrity, migrations
from orchestrator.store.column_types import JsonText, Words
from orchestrator.store.database import Database, newest_migration
from orchestrator.store.series import check_chunk
from orchestrator.store.tables import (
    attempts,
    chunks,
    experiments,
    external_chunks,
    metadata,
    observations,
    results,
    run_specs,
    runs,
    samples,
)
from orchestrator.store.tables import external_runs as external_run_rows

ROWS_AT_ONCE = 64
"""The rows in memory while all are read, some 100 kB each at most."""
COPY_PAGES = 4096
"""Copied between two breaths of the writers: 16 MiB."""


def revision(database: Database) -> tuple[str | None, str]:
    """Return the revision of the database's schema (None: no tables yet) and the newest one."""
    with database.reading() as connection:
        return migrations.current_revision(connection), newest_migration()


def faults(database: Database) -> tuple[str, ...]:
    """Return the faults of the database, a sentence each; empty if it is sound. Every row of every table is read.
    Raises `StoreError`."""
    current, newest = revision(database)
    if current is not None and (unknown := migrations.unknown_schema(current)) is not None:
        return ("the schema is {}: {}".format(*unknown),)
    if current != newest:
        return (f"the schema is {current or 'missing'}, not {newest}; `adapm-bench db upgrade` brings it there",)
    with database.reading() as connection:
        damage = _damage(connection) if database.dialect == "sqlite" else []
        return (*damage, *_unreadable(connection), *_contradictions(connection))


def _damage(connection: Connection) -> list[str]:
    pages = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check") if row[0] != "ok"]
    strays = [
        f"{row[0]}: a row refers to no {row[2]}" for row in connection.exec_driver_sql("PRAGMA foreign_key_check")
    ]
    return pages + strays


def _unreadable(connection: Connection) -> Iterator[str]:
    """Yield every row that is not what was written: by its checksum, and by being read as everybody reads it."""
    for table in metadata.sorted_tables:
        # Words as they are: what a column has that is none of them is found by nobody but a reader of words.
        plain = (
            sa.type_coerce(column, sa.Text()).label(column.name) if isinstance(column.type, Words) else column
            for column in table.c
        )
        query = sa.select(*plain).execution_options(yield_per=ROWS_AT_ONCE)
        key = [column.name for column in table.primary_key]
        for row in connection.execute(query).mappings():
            row_name = f"{table.name} {' '.join(str(row[name]) for name in key)}"
            for column in table.c:
                value, kind = row[column.name], column.type
                if isinstance(kind, Words) and value is not None and value not in set(kind.kind):
                    yield f"{row_name}: {column.name} holds {value!r}, which is none of its words"
                noun, read = CONTENTS.get(column, (column.name, None))
                try:
                    if read is not None:
                        read(row)
                    elif isinstance(kind, JsonText) and value is not None:
                        integrity.stored(JSON_KINDS.get(column, Any), value)
                except DamagedError as error:
                    yield f"{row_name}: the stored {noun} {error}"


Reader = Callable[[sa.RowMapping], object]


CONTENTS: dict[sa.Column[Any], tuple[str, Reader]] = {
    experiments.c.spec: ("specification", lambda row: integrity.experiment_spec(row["spec"], row["spec_hash"])),
    run_specs.c.spec: ("specification", lambda row: integrity.run_spec(row["spec"], row["checksum"])),
    results.c.result: ("result", lambda row: integrity.result(row["result"], row["checksum"])),
    chunks.c.data: ("points", lambda row: check_chunk(SimpleNamespace(**row), FIELDS, trusts_checksum=False)),
    observations.c.blocks: ("observation", lambda row: integrity.unpack(row["blocks"], row["checksum"])),
    samples.c.texts: ("texts", lambda row: integrity.unpack(row["texts"], row["checksum"])),
    external_chunks.c.data: ("lines", external_runs.read_chunk),
    external_run_rows.c.state: ("state", lambda row: external_runs.read_state(row["state"])),
}
"""The readers of columns whose content is more than their types say."""
JSON_KINDS = {external_run_rows.c[name]: kind for name, kind in external_runs.STORED.items()}
"""The types of columns of JSON; one that is neither here nor above is read as any JSON."""


def _contradictions(connection: Connection) -> list[str]:
    """Return the broken promises of the queue that no constraint of SQL can hold."""
    has_result = sa.exists().where(results.c.run_id == runs.c.id)
    has_lease = sa.exists().where(attempts.c.run_id == runs.c.id, attempts.c.ended_at.is_(None))
    promises = {
        "has no specification": (~sa.exists().where(run_specs.c.run_id == runs.c.id), sa.true()),
        "succeeded without a result": (runs.c.status == RunStatus.SUCCEEDED, ~has_result),
        "has a result without having succeeded": (runs.c.status != RunStatus.SUCCEEDED, has_result),
        "has ended and still holds a lease": (runs.c.status.in_(TERMINAL), has_lease),
        "is live without a lease": (runs.c.status.in_(LIVE), ~has_lease),
    }
    return [
        f"run {run_id} {contradiction}"
        for contradiction, conditions in promises.items()
        for run_id in connection.execute(sa.select(runs.c.id).where(*conditions).limit(20)).scalars()
    ]


def backup(url: str, target: Path) -> None:
    """Copy the database into a new file, of one moment, while it is being used. Raises `StoreError`."""
    if target.exists():
        raise StoreError(f"{target} exists already; a backup overwrites nothing, give it another name")
    parsed = make_url(url)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if parsed.get_backend_name() == "sqlite":
            source = Path(parsed.database or "")
            if not source.exists():
                raise StoreError(f"there is no database at {source}")
            with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(target)) as copy:
                origin.backup(copy, pages=COPY_PAGES)
        else:
            _dump_postgresql(parsed, target)
    except (OSError, sqlite3.Error) as error:
        target.unlink(missing_ok=True)
        raise StoreError(f"no backup at {target}: {error}") from error


def _dump_postgresql(url: sa.URL, target: Path) -> None:
    if shutil.which("pg_dump") is None:
        raise StoreError("a backup of PostgreSQL needs pg_dump, which is not on the PATH; install PostgreSQL's client")
    # The password goes by the environment's rules of libpq, never into a command line that everybody can read.
    environment = os.environ | ({"PGPASSWORD": str(url.password)} if url.password else {})
    dump = ["pg_dump", "--format=custom", f"--file={target}", f"--dbname={_without_password(url)}"]
    completed = subprocess.run(dump, capture_output=True, text=True, env=environment)
    if completed.returncode != 0:
        raise StoreError(f"pg_dump failed: {completed.stderr.strip()}")


def _without_password(url: sa.URL) -> str:
    # `URL.set(password=None)` would leave the password as it is.
    plain = sa.URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    return plain.render_as_string(hide_password=False)


def restore_command(url: str, target: Path) -> str:
    """Return the command that makes the database of a backup again; the service is stopped before it."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        database = parsed.database or ""
        # What the write-ahead log holds is of the database that is replaced.
        remove = shlex.join(["rm", "-f", f"{database}-wal", f"{database}-shm"])
        return f"{remove} && {shlex.join(['cp', str(target), database])}"
    flags = ["--clean", "--if-exists", "--no-owner", "--single-transaction", "--exit-on-error"]
    return shlex.join(["pg_restore", *flags, f"--dbname={_without_password(parsed)}", str(target)])
