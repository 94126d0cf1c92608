"""`Database`: durability levels, one writer, snapshots, and errors that say what to do."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from orchestrator.errors import StoreError
from orchestrator.store.database import Database, db_now
from tests.factories.stores import sqlite_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as database:
        yield database


def pragma(connection: sa.Connection, name: str) -> object:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
def test_durable_commits_are_forced_to_disk_and_others_are_not(database: Database, durable: bool, level: int) -> None:
    """SQLite's own words: synchronous 2 is FULL, 1 is NORMAL; the level must not leak to the next transaction."""
    for is_durable, expected in ((not durable, 3 - level), (durable, level)):
        with database.writing(durable=is_durable) as connection:
            assert pragma(connection, "synchronous") == expected


def test_sqlite_runs_in_wal_mode_with_foreign_keys(database: Database) -> None:
    with database.reading() as connection:
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "foreign_keys") == 1
    with pytest.raises(sa.exc.IntegrityError), database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO run_specs (run_id, spec) VALUES ('nobody', '{}')")


def test_the_databases_clock_is_seconds_since_1970(database: Database) -> None:
    with database.reading() as connection:
        assert abs(float(connection.execute(sa.select(db_now())).scalar_one()) - time.time()) < 5
        database.clock_offset_seconds = 3600.0
        assert float(connection.execute(sa.select(database.now())).scalar_one()) - time.time() > 3500


def test_a_reader_sees_one_moment_while_a_writer_commits(database: Database) -> None:
    query = "SELECT sum(value) FROM change_counters"
    with database.reading() as reader:
        total = reader.exec_driver_sql(query).scalar_one()
        with database.writing() as writer:
            writer.exec_driver_sql("UPDATE change_counters SET value = value + 1")
        assert reader.exec_driver_sql(query).scalar_one() == total
    with database.reading() as reader:
        assert reader.exec_driver_sql(query).scalar_one() == total + 16


@pytest.mark.parametrize("processes", [1, 3])
def test_writers_take_turns(tmp_path: Path, processes: int) -> None:
    """Twelve threads read and write back: no update is lost and none meets a locked database; also with a `Database`
    each for three groups of them, which know as little of each other as processes do."""

    def add(database: Database) -> None:
        for _ in range(10):
            with database.writing(durable=False) as connection:
                value = connection.exec_driver_sql("SELECT value FROM change_counters WHERE shard = 0").scalar_one()
                connection.exec_driver_sql(f"UPDATE change_counters SET value = {value + 1} WHERE shard = 0")

    with ExitStack() as stack, ThreadPoolExecutor(12) as threads:
        databases = [stack.enter_context(sqlite_database(tmp_path)) for _ in range(processes)]
        for future in [threads.submit(add, databases[number % processes]) for number in range(12)]:
            future.result()
        with databases[0].reading() as connection:
            assert connection.exec_driver_sql("SELECT value FROM change_counters WHERE shard = 0").scalar_one() == 120


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("user:secret@nonsense", r"^cannot read the database URL; use sqlite"),
        ("sqlite://", "use sqlite:///<file> or postgresql://"),
        ("sqlite:///:memory:", "use sqlite:///<file> or postgresql://"),
        ("mysql://user:secret@host/db", r"'mysql://user:\*\*\*@host/db'"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        Database(url)


def test_a_database_without_tables_is_not_healthy(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'empty.sqlite3'}")
    with pytest.raises(StoreError, match="no tables yet"):
        database.check()
    database.migrate()
    database.check()
    database.close()


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, this is not a database. " * 100)
    database = Database(f"sqlite:///{file}")
    with pytest.raises(StoreError, match="file is not a database"):
        database.migrate()
    database.close()
    assert file.read_text().startswith("Dear reader")


def test_a_file_made_by_another_program_keeps_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "other.sqlite3"
    foreign_connection = sqlite3.connect(file)
    foreign_connection.execute("CREATE TABLE theirs (x)")
    foreign_connection.close()
    database = Database(f"sqlite:///{file}")
    database.migrate()
    with database.reading() as connection:
        assert sa.inspect(connection).has_table("theirs")
    database.close()


def test_a_file_that_may_not_be_written_is_refused_at_the_start(database: Database, tmp_path: Path) -> None:
    """What could be read alone would answer for a service that takes nothing."""
    file = next(tmp_path.glob("*.sqlite3"))
    read_only = Database(f"sqlite:///file:{file}?mode=ro&uri=true")
    try:
        read_only.check()
        with pytest.raises(
            StoreError, match=rf"database file:{file} cannot be used: .*readonly.*; let this user write"
        ):
            read_only.migrate()
    finally:
        read_only.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "bench.sqlite3"
    with pytest.raises(StoreError, match=rf"{file} cannot be used: unable to open .*; .* folder, which must exist"):
        Database(f"sqlite:///{file}").check()
