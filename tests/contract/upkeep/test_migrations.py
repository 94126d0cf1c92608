"""The schema's history makes exactly the tables that the code uses."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations

from orchestrator.annotations import AnnotationChange
from orchestrator.errors import StoreError
from orchestrator.jobs import LeasePolicy, RunAction, RunStatus
from orchestrator.kinds.tuning import Tuning
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store.database import Database, newest_migration
from orchestrator.store.migrations import current_revision, newest_revision
from orchestrator.store.migrations.versions import r0021_campaigns
from orchestrator.store.queue.queue import Queue
from orchestrator.store.tables import OutboxKind, metadata, outbox
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, claim, comparison_spec, result


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
    services = make_services(empty)
    experiment = services.experiments.submit(comparison_spec()).experiment
    empty.migrate()
    assert services.experiments.get(experiment.id) == experiment


def test_what_was_to_follow_in_the_schema_of_0024_follows_once(empty: Database) -> None:
    """It knew no news: its runs had ended and queued what follows in one transaction; ends had a table of their own."""
    empty.migrate()
    services, queue = make_services(empty), Queue(empty, LeasePolicy())
    spec = comparison_spec(seeds=(1,), tuning=Tuning(seeds=(0,), trials=3))
    experiment, ended = services.experiments.submit(spec).experiment, services.experiments.submit(comparison_spec())
    services.experiments.apply(ended.experiment.id, RunAction.CANCEL)
    for lease in claim(queue, cpus=3, limit=3):
        services.attempts.hello(lease.run_id, lease.attempt, lease.token)
        services.attempts.finish(lease.run_id, lease.attempt, lease.token, result())
    with empty.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE experiments DROP COLUMN news")
        connection.exec_driver_sql(
            "CREATE TABLE webhook_endings (id INTEGER PRIMARY KEY, experiment_id TEXT, created_at FLOAT)"
        )
        for number, id in enumerate((ended.experiment.id, "removed")):
            connection.exec_driver_sql(f"INSERT INTO webhook_endings VALUES ({number}, '{id}', 1.5)")
        entries = connection.execute(sa.select(outbox).order_by(outbox.c.id)).all()
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0024'")
    empty.migrate()
    with empty.reading() as connection:
        *others, last = connection.execute(sa.select(outbox).order_by(outbox.c.id)).all()
    assert others == entries
    assert (last.kind, last.experiment_id, last.created_at) == (OutboxKind.EXPERIMENT_ENDED, ended.experiment.id, 1.5)
    follow_ups = FollowUps(empty)
    assert [follow_ups.follow(), follow_ups.follow()] == [1, 0]
    assert services.experiments.get(experiment.id).counts.by_status == {RunStatus.SUCCEEDED: 3, RunStatus.QUEUED: 1}


def test_a_migration_that_breaks_leaves_the_database_as_it_was(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    def broken(*_arguments: object) -> None:
        raise RuntimeError("the power went out")

    monkeypatch.setattr(op, "bulk_insert", broken)  # the last thing that the first revision does
    with pytest.raises(RuntimeError, match="power"):
        empty.migrate()
    assert tables(empty) == set()


def test_the_newest_migration_is_known_by_the_name_of_its_file(empty: Database) -> None:
    """By which `migrate` sees that nothing is to be done, without alembic."""
    empty.migrate()
    with empty.reading() as connection:
        assert newest_migration() == newest_revision() == current_revision(connection)


@pytest.mark.parametrize(
    ("revision", "fault"),
    [
        ("9999", "the schema 9999, which this version does not know.*install the newer adapm-bench that made it"),
        ("0016", "the schema 0016, of a version before the first release.*use the adapm-bench that made it, or a new"),
    ],
)
def test_a_database_of_an_unknown_schema_is_refused_and_left_alone(empty: Database, revision: str, fault: str) -> None:
    empty.migrate()
    with empty.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    with pytest.raises(StoreError, match=fault):
        empty.migrate()
    with empty.reading() as connection:
        assert current_revision(connection) == revision


def test_the_ledger_of_an_old_campaign_is_in_the_notes_of_its_experiments(empty: Database) -> None:
    empty.migrate()
    services = make_services(empty)
    tried, other = (services.experiments.submit(comparison_spec(name=name)).experiment for name in ("try", "other"))
    services.experiments.annotate(tried.id, AnnotationChange(note="mine"))
    with empty.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0025'")
        with Operations.context(MigrationContext.configure(connection)):
            r0021_campaigns.upgrade()
        connection.exec_driver_sql("UPDATE experiments SET growing = (1 = 1), news = 4")
        number = connection.exec_driver_sql("SELECT number FROM experiments WHERE name = 'try'").scalar_one()
        connection.exec_driver_sql("INSERT INTO campaigns VALUES (1, 'c1', 'old', '{\"gain\":0.02}', 1.0, NULL)")
        connection.exec_driver_sql(f"INSERT INTO campaign_experiments VALUES (1, 2, 0, '{{}}', {number})")
        for entry, place in ((1, None), (2, 1), (3, 2)):
            body = json.dumps({"number": entry, **({"place": place} if place else {})})
            connection.exec_driver_sql(f"INSERT INTO campaign_entries VALUES (1, {entry}, '{body}', '', NULL)")
    empty.migrate()
    assert not tables(empty) & {"campaigns", "campaign_experiments", "campaign_entries"}
    note = services.experiments.get(tried.id).note
    assert note is not None and note.text == (
        'mine\n\nTry 2 of campaign old (c1):\n\n    {"gain":0.02}\n    {"number": 3, "place": 2}'
    )
    assert services.experiments.get(other.id).note is None
    with empty.reading() as connection:
        rows = connection.exec_driver_sql("SELECT growing, news FROM experiments ORDER BY number").all()
    assert [tuple(row) for row in rows] == [(False, -4), (True, 4)]
