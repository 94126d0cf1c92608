"""The schema's history makes exactly the tables that the code uses, and can be undone."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from orchestrator.errors import StoreError
from orchestrator.jobs import LeasePolicy
from orchestrator.services.bench import Bench
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database, newest_migration
from orchestrator.store.migrations import current_revision, newest_revision
from orchestrator.store.queue.queue import Queue
from orchestrator.store.submission import Submittal
from orchestrator.store.tables import chunks, metadata, results, run_specs
from tests.factories.stores import PostgresqlServer, batch, claim, comparison_spec, result


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    with ExitStack() as stack:
        if request.param == "postgresql":
            server: PostgresqlServer = request.getfixturevalue("postgresql")
            yield stack.enter_context(server.open(server.create_database()))
        else:
            database = Database(f"sqlite:///{tmp_path / 'empty.sqlite3'}")
            stack.callback(database.close)
            yield database


def tables(database: Database) -> set[str]:
    with database.reading() as connection:
        return set(sa.inspect(connection).get_table_names())


def test_the_migrations_make_the_tables_of_the_code(empty: Database) -> None:
    empty.migrate()
    with empty.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_the_migrations_make_the_constraints_of_the_code(tmp_path: Path) -> None:
    """Alembic does not compare CHECKs and partial indexes; SQLite keeps the statements themselves."""
    migrated, made = (Database(f"sqlite:///{tmp_path / name}") for name in ("migrated", "made"))
    migrated.migrate()
    with made.writing() as connection:
        metadata.create_all(connection)
    expected = statements(made)
    assert sum(sql.count("check (") for lines in expected for sql in lines) >= 10
    assert statements(migrated) == expected


def statements(database: Database) -> list[list[str]]:
    """Every CREATE statement of a SQLite file as its sorted parts: neither order nor line breaks mean anything."""
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
    with database.reading() as connection:
        found = [sql.lower() for (sql,) in connection.exec_driver_sql(query)]
    database.close()
    return sorted(sorted(" ".join(part.split()) for part in parts(sql)) for sql in found)


def parts(sql: str) -> list[str]:
    """A statement's head, and what its outermost parentheses list."""
    head, _, body = sql.partition("(")
    listed, depth = [""], 0
    for letter in body.rpartition(")")[0]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            listed.append("")
        else:
            listed[-1] += letter
    return [head, *listed]


def test_migrating_again_changes_nothing(empty: Database) -> None:
    empty.migrate()
    bench = Bench(empty, LeasePolicy(), Path("/runs"), Path("/datasets"))
    experiment = bench.submit(comparison_spec()).experiment
    empty.migrate()
    assert bench.experiment(experiment.id) == experiment


def test_the_migrations_can_be_undone(empty: Database) -> None:
    empty.migrate()
    Bench(empty, LeasePolicy(), Path("/runs"), Path("/datasets")).submit(comparison_spec())
    empty.migrate("base")
    assert tables(empty) == {"alembic_version"}
    empty.migrate()
    assert tables(empty) == set(metadata.tables) | {"alembic_version"}


def test_a_run_in_flight_survives_the_way_back_and_forth(empty: Database) -> None:
    """Its worker, which knows nothing of it, records its result; the others wait in the order of submission."""
    empty.migrate()
    bench = Bench(empty, LeasePolicy(), Path("/runs"), Path("/datasets"))
    queue = Queue(empty, LeasePolicy())
    bench.submit(comparison_spec(seeds=(1, 2, 3)))
    (lease,) = claim(queue, cpus=1, limit=1)
    bench.hello(lease.run_id, 1, lease.token)
    empty.migrate("0001")
    empty.migrate()
    bench.finish(lease.run_id, 1, lease.token, result())
    assert [run.status for run in bench.runs()] == ["succeeded", "queued", "queued"]
    assert [each.run_id for each in claim(queue, cpus=9, limit=9)] == [run.id for run in bench.runs()[1:]]


def test_runs_of_several_gpus_from_before_have_a_process_for_each(empty: Database) -> None:
    """Their CPUs were counted once; they are those of each process now."""
    empty.migrate()
    bench = Bench(empty, LeasePolicy(), Path("/runs"), Path("/datasets"))
    bench.submit(comparison_spec(seeds=(1,), cpus=3, gpus=2))
    bench.submit(comparison_spec(seeds=(1,), cpus=3, gpus=1))

    def occupied() -> list[tuple[int, ...]]:
        names = "cpus, gpus" + (", processes" if at_head else "")
        with empty.reading() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(f"select {names} from runs order by id")]

    at_head = True
    assert sorted(occupied()) == [(3, 1, 1), (6, 2, 2)]
    empty.migrate("0006")
    at_head = False
    assert sorted(occupied()) == [(3, 1), (3, 2)]
    empty.migrate()
    at_head = True
    assert sorted(occupied()) == [(3, 1, 1), (6, 2, 2)]


def test_experiments_from_before_have_the_trace_of_their_runs(empty: Database) -> None:
    """So that the runs that they get later are of the trace of their submission, too."""
    empty.migrate()
    queue, traced = Queue(empty, LeasePolicy()), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    queue.submit([Submittal.of(comparison_spec(seeds=(1, 2)), None, trace_parent=traced)])
    queue.submit([Submittal.of(comparison_spec(seeds=(1,)), None)])
    empty.migrate("0014")
    empty.migrate()
    with empty.reading() as connection:
        found = connection.exec_driver_sql("select trace_parent from experiments order by number").scalars().all()
    assert list(found) == [traced, None]


def test_a_migration_that_breaks_leaves_the_database_as_it_was(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    def broken(*_arguments: object) -> None:
        raise RuntimeError("the power went out")

    monkeypatch.setattr(op, "bulk_insert", broken)  # the last thing that revision 0001 does
    with pytest.raises(RuntimeError, match="power"):
        empty.migrate()
    assert tables(empty) == set()


def test_the_newest_migration_is_known_by_the_name_of_its_file(empty: Database) -> None:
    """By which `migrate` sees that nothing is to be done, without alembic."""
    empty.migrate()
    with empty.reading() as connection:
        assert newest_migration() == newest_revision() == current_revision(connection)


def test_a_database_of_a_newer_version_is_refused_and_left_alone(empty: Database) -> None:
    empty.migrate()
    with empty.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="schema '9999' of another version"):
        empty.migrate()
    with empty.reading() as connection:
        assert current_revision(connection) == "9999"


def test_an_unknown_revision_is_refused(empty: Database) -> None:
    with pytest.raises(StoreError, match="cannot be brought to the schema 'nonsense'"):
        empty.migrate("nonsense")


def test_a_row_that_is_no_text_stops_no_migration(empty: Database) -> None:
    """It is found by whoever reads it."""
    if empty.dialect != "sqlite":
        pytest.skip("PostgreSQL refuses text that is no UTF-8")
    empty.migrate()
    Bench(empty, LeasePolicy(), Path("/runs"), Path("/datasets")).submit(comparison_spec(seeds=(1, 2)))
    empty.migrate("0016")
    with empty.writing() as connection:
        damage = (
            "update run_specs set spec = cast(x'7bff7d' as text) where run_id = (select min(run_id) from run_specs)"
        )
        assert connection.execute(sa.text(damage)).rowcount
    empty.migrate()
    assert len(maintenance.faults(empty)) >= 1


def test_rows_that_are_there_get_the_checksum_that_new_ones_have(empty: Database) -> None:
    empty.migrate()
    bench = Bench(empty, LeasePolicy(), Path("/runs"), Path("/datasets"))
    bench.submit(comparison_spec(seeds=tuple(range(1, 251))))  # more than one page of the migration
    (lease,) = claim(Queue(empty, LeasePolicy()), cpus=1, limit=1)
    bench.hello(lease.run_id, 1, lease.token)
    bench.append_points(lease.run_id, 1, lease.token, batch(0, range(5)))
    bench.finish(lease.run_id, 1, lease.token, result())

    def checksums() -> list[tuple[str, int]]:
        with empty.reading() as connection:
            return [
                (row.run_id, row.checksum)
                for table in (run_specs, results, chunks)
                for row in connection.execute(sa.select(table.c.run_id, table.c.checksum).order_by(table.c.run_id))
            ]

    before = checksums()
    assert len(before) == 252
    empty.migrate("0016")
    empty.migrate()
    assert checksums() == before
    assert maintenance.faults(empty) == ()
