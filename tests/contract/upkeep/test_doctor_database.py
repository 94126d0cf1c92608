"""What the doctor says of databases that cannot be used, each fault produced: SQLite files and a PostgreSQL server."""

import os
import resource
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from api.cli.doctor import database as doctor_database
from api.cli.doctor.check import Check
from api.cli.doctor.machine import Mount, file_system, is_network_file_system
from orchestrator.settings import Settings
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database
from orchestrator.store.migrations import newest_revision
from tests.factories.stores import PostgresqlServer


def look(url: str) -> dict[str, Check]:
    """What is found at that database, by its name."""
    return {check.name: check for check in doctor_database.database(Settings(database_url=url))}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database of today's schema."""
    path = tmp_path / "bench.sqlite3"
    with closing(Database(f"sqlite:///{path}")) as database:
        database.migrate()
    return path


def broken(found: dict[str, Check], name: str, *words: str) -> None:
    """That is all that is broken, and these words are in what is said of it."""
    assert [each for each, check in found.items() if not check.ok] == [name]
    said = f"{found[name].found} → {found[name].way_out}"
    assert [word for word in words if word not in said] == []


def test_a_sound_file_is_sound_and_as_it_was(file: Path) -> None:
    found = look(f"sqlite:///{file}")
    assert [(check.name, check.ok, check.way_out) for check in found.values()] == [
        ("database", True, ""),
        ("schema", True, ""),
    ]
    assert found["schema"].found == f"{newest_revision()}, the newest"


def test_a_file_that_will_be_made_is_no_fault(tmp_path: Path) -> None:
    found = look(f"sqlite:///{tmp_path / 'none.sqlite3'}")
    assert found["database"].ok
    assert "will make it" in found["database"].found
    assert not (tmp_path / "none.sqlite3").exists()


def test_a_file_that_another_process_holds(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_database, "LOCK_SECONDS", 0.05)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        broken(look(f"sqlite:///{file}"), "database", "locked", "another process has locked")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a database, but a text that is longer than its header" * 20)
    broken(look(f"sqlite:///{tmp_path / 'notes'}"), "database", "not a database", "backup")


def test_a_file_that_may_not_grow(file: Path) -> None:
    """A quota, as a full disk: what SQLite says of it differs, what is to be done does not."""
    with at_most(file_bytes=100):
        found = look(f"sqlite:///{file}")
    broken(found, "database", "quota")
    assert look(f"sqlite:///{file}")["database"].ok


@contextmanager
def at_most(file_bytes: int) -> Iterator[None]:
    """No file of this process may be longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("revision", "found", "way_out"),
    [
        ("0023", "0023, which is older than 0024", "open it once with the last adapm-bench of the schema 0025"),
        ("9999", "9999, which this version does not know", "newer adapm-bench"),
    ],
)
def test_schemas_that_this_version_does_not_know(file: Path, revision: str, found: str, way_out: str) -> None:
    with closing(Database(f"sqlite:///{file}")) as database, database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    broken(look(f"sqlite:///{file}"), "schema", found, way_out)


def test_a_schema_of_yesterday_is_to_be_upgraded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "revision", lambda _: (newest_revision(), "9999"))
    broken(look(f"sqlite:///{file}"), "schema", f"{newest_revision()}, behind this version's 9999", "db upgrade")


def test_a_database_without_tables(tmp_path: Path) -> None:
    (tmp_path / "empty.sqlite3").touch()
    broken(look(f"sqlite:///{tmp_path / 'empty.sqlite3'}"), "schema", "no tables", "adapm-bench db upgrade")


def test_file_systems_are_told_by_the_nearest_mount_the_last_of_two(tmp_path: Path) -> None:
    mounts = [Mount("/", "ext4"), Mount("/shared", "ext4"), Mount("/shared", "nfs4"), Mount("/shared/fast", "xfs")]
    told = {place: file_system(Path(place), mounts) for place in ("/bench", "/shared/bench", "/shared/fast/x")}
    assert told == {"/bench": "ext4", "/shared/bench": "nfs4", "/shared/fast/x": "xfs"}
    assert [
        kind for kind in ("nfs4", "fuse.sshfs", "cifs", "lustre", "ext4", "apfs") if is_network_file_system(kind)
    ] == [
        "nfs4",
        "fuse.sshfs",
        "cifs",
        "lustre",
    ]
    assert file_system(tmp_path) != "unknown"


def test_a_file_that_other_machines_share_is_worth_a_notice(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_database, "file_system", lambda _: "nfs4")
    found = look(f"sqlite:///{file}")
    assert found["database"].ok
    assert "PostgreSQL" in found["database"].way_out


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", ("no database URL",)),
        ("postgresql://bench@host:port/bench", ("no database URL",)),
        ("mysql://bench@host/bench", ("cannot keep", "sqlite:///<file> or postgresql://")),
        ("postgresql://bench:hidden@no-such-machine.invalid/bench", ("***", "no machine has that name")),
    ],
)
def test_urls_that_lead_nowhere(url: str, words: tuple[str, ...]) -> None:
    found = look(url)
    broken(found, "database", *words)
    assert "hidden" not in str(found)


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    broken(look(f"postgresql://bench@127.0.0.1:{port}/bench"), "database", "refused", "start the server")


@pytest.mark.postgres
def test_a_server_that_answers(postgresql: PostgresqlServer) -> None:
    """As it should; without the database; without the role; where nothing may be written; without tables."""
    name = postgresql.create_database()
    broken(look(postgresql.url(name)), "schema", "no tables")
    with postgresql.open(name) as database:
        database.migrate()
        found = look(postgresql.url(name))
        assert [check.name for check in found.values() if check.ok and not check.way_out] == [
            "database",
            "schema",
            "clock",
        ]
        broken(look(postgresql.url("nowhere")), "database", "does not exist", "createdb")
        broken(look(postgresql.url(name).replace("bench@", "nobody@")), "database", "does not exist", "createuser")
        with database.writing() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    broken(look(postgresql.url(name)), "database", "read-only", "primary")


@pytest.mark.postgres
def test_a_clock_that_is_off(postgresql: PostgresqlServer) -> None:
    database = Database(postgresql.url(postgresql.create_database()), clock_offset_seconds=-60.0)
    with closing(database):
        check = doctor_database.clock(database)
    assert not check.ok
    assert "60.0 s ahead of the database's" in check.found
    assert "timedatectl" in check.way_out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written(file: Path) -> None:
    file.chmod(0o444)
    broken(look(f"sqlite:///{file}"), "database", "readonly", "let this user write")


def test_a_folder_that_was_taken_away(file: Path) -> None:
    """A database is there again as soon as the service makes it: no fault, and said."""
    shutil.rmtree(file.parent)
    assert "will make it" in look(f"sqlite:///{file}")["database"].found
