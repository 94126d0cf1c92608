"""A new database and one of the schema before this history come to exactly the tables that the code uses."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from orchestrator.analysis.external_runs import judge
from orchestrator.errors import StoreError
from orchestrator.external_runs import JudgementChoice
from orchestrator.records import Conclusion
from orchestrator.store.database import Database, newest_migration
from orchestrator.store.migrations import FORMER_REVISIONS, current_revision
from orchestrator.store.tables import CHANGE_COUNTERS, metadata
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, comparison_spec


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


FORMER = Path(__file__).parent / "schema_0025"
"""The last version's own schema of an empty database, of each kind."""


def make_former(database: Database, revision: str = FORMER_REVISIONS[-1]) -> None:
    """Give an empty database the schema 0025, or 0024, which it follows by a column."""
    with database.writing() as connection:
        for statement in split_statements((FORMER / f"{database.dialect}.sql").read_text()):
            connection.exec_driver_sql(statement)
        if revision == "0024":
            connection.exec_driver_sql("ALTER TABLE experiments DROP COLUMN news")
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0024'")


def split_statements(script: str) -> list[str]:
    """The statements of a dump; each ends with a semicolon at the end of a line, outside of a function's body."""
    sql_statements, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if line.endswith(";\n") and begun.count("$$") % 2 == 0:
            sql_statements.append(begun)
            begun = ""
    return sql_statements


@pytest.mark.parametrize("former", [None, *FORMER_REVISIONS])
def test_a_new_and_a_former_database_come_to_the_tables_of_the_code(empty: Database, former: str | None) -> None:
    if former:
        make_former(empty, former)
    empty.migrate()
    with empty.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert connection.exec_driver_sql("SELECT count(*) FROM change_counters").scalar_one() == CHANGE_COUNTERS
        assert current_revision(connection) == newest_migration()
        if empty.dialect == "postgresql":
            query = "SELECT json_text_at(%s, %s), json_number_at(%s, %s)"
            read = connection.exec_driver_sql(query, ('{"a": "b"}', ["a"], '{"a": 1e400}', ["a"])).one()
            assert tuple(read) == ("b", None)
    services = make_services(empty)
    experiment = services.experiments.submit(comparison_spec()).experiment
    assert services.experiments.get(experiment.id) == experiment


def test_a_former_database_has_the_constraints_of_the_code(tmp_path: Path) -> None:
    """Alembic does not compare CHECKs and partial indexes; SQLite keeps the statements themselves."""
    migrated, fresh_database = (Database(f"sqlite:///{tmp_path / name}") for name in ("migrated", "made"))
    make_former(migrated)
    for database in (migrated, fresh_database):
        database.migrate()
    expected = statements(fresh_database)
    assert any("check (" in sql for lines in expected for sql in lines)
    assert statements(migrated) == expected


def statements(database: Database) -> list[list[str]]:
    """Every CREATE statement of a SQLite file as its sorted parts: neither order nor line breaks mean anything."""
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
    with database.reading() as connection:
        definitions = [sql.lower().replace('"', "") for (sql,) in connection.exec_driver_sql(query)]
    database.close()
    return sorted(sorted(" ".join(part.split()) for part in parts(sql)) for sql in definitions)


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


def test_what_a_former_database_had_of_campaigns_endings_and_labels_is_kept(empty: Database) -> None:
    """Ledgers are in the notes of their experiments, which grow no more; ends that webhooks hear of, in the outbox;
    labels beside their experiments."""
    make_former(empty)
    experiments = "INSERT INTO experiments (number, id, name, kind, spec, spec_hash, created_at, growing, news, note)"
    rows = [
        f"{experiments} VALUES (1, 'tried', 'try', 'comparison', '{{}}', '', 1.0, true, 4, 'mine')",
        f"{experiments} VALUES (2, 'other', 'other', 'comparison', '{{}}', '', 2.0, true, 4, NULL)",
        "INSERT INTO campaigns VALUES (1, 'c1', 'old', '{\"gain\":0.02}', 1.0, NULL)",
        "INSERT INTO campaign_experiments VALUES (1, 2, 0, '{}', 1)",
        "INSERT INTO outbox (kind, experiment_id, created_at, available_at, tries)"
        " VALUES ('experiment_submitted', 'other', 1.0, 3.0, 2)",
        "INSERT INTO labels VALUES (2, 'tiny'), (2, 'Paper')",
        *(
            f"INSERT INTO external_experiments VALUES ({number}, 'x{number}', 'x{number}', 1.0, NULL, '{labels}')"
            for number, labels in ((1, '["mine", "\\u00c4hre"]'), (2, "[]"), (3, "damaged"))
        ),
        *(f"INSERT INTO webhook_endings VALUES ({id}, '{name}', 1.5)" for id, name in ((1, "other"), (2, "removed"))),
    ]
    for entry, rank in ((1, None), (2, 1), (3, 2)):
        body = json.dumps({"number": entry, **({"place": rank} if rank else {})})
        rows.append(f"INSERT INTO campaign_entries VALUES (1, {entry}, '{body}', '', NULL)")
    with empty.writing() as connection:
        for row in rows:
            connection.exec_driver_sql(row)
    empty.migrate()
    with empty.reading() as connection:
        experiment_rows = connection.exec_driver_sql(
            "SELECT growing, news, note, noted_at FROM experiments ORDER BY number"
        ).all()
        tables = (metadata.tables["experiments"], metadata.tables["external_experiments"])
        labels = [connection.scalars(sa.select(table.c.labels).order_by(table.c.number)).all() for table in tables]
        columns = "kind, experiment_id, created_at, available_at, tries"
        entries = connection.exec_driver_sql(f"SELECT {columns} FROM outbox ORDER BY id").all()
    note = 'mine\n\nTry 2 of campaign old (c1):\n\n    {"gain":0.02}\n    {"number": 3, "place": 2}'
    assert [tuple(row) for row in experiment_rows] == [(False, -4, note, 1.0), (True, 4, None, None)]
    assert labels == [[(), ("Paper", "tiny")], [("mine", "Ähre"), (), ()]]
    assert [tuple(row) for row in entries] == [
        ("experiment_submitted", "other", 1.0, 3.0, 2),
        ("experiment_ended", "other", 1.5, 1.5, 0),
    ]


def test_migrating_again_changes_nothing(empty: Database) -> None:
    empty.migrate()
    services = make_services(empty)
    experiment = services.experiments.submit(comparison_spec()).experiment
    empty.migrate()
    assert services.experiments.get(experiment.id) == experiment


@pytest.mark.parametrize("is_former", [False, True])
def test_a_migration_that_breaks_leaves_the_database_as_it_was(
    empty: Database, is_former: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_former:
        make_former(empty)
    expected = tables(empty)
    stamp = command.stamp

    def stamp_and_break(*arguments: Any, **options: Any) -> None:
        stamp(*arguments, **options)
        raise RuntimeError("the power went out")

    monkeypatch.setattr(command, "stamp", stamp_and_break)
    with pytest.raises(RuntimeError, match="power"):
        empty.migrate()
    assert tables(empty) == expected
    with empty.reading() as connection:
        assert current_revision(connection) == (FORMER_REVISIONS[-1] if is_former else None)


def test_the_newest_migration_is_known_by_the_name_of_its_file(empty: Database) -> None:
    """By which `migrate` sees that nothing is to be done, without alembic."""
    empty.migrate()
    with empty.reading() as connection:
        assert newest_migration() == current_revision(connection)


@pytest.mark.parametrize(
    ("revision", "fault"),
    [
        ("9999", "the schema 9999, which this version does not know.*install the newer adapm-bench that made it"),
        (
            "0023",
            "the schema 0023, which is older than 0024.*open it once with the last adapm-bench of the schema 0025",
        ),
        ("0001", "the schema 0001, which is older than 0024"),
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


WRITTEN = Path(__file__).parent / "written_0024.sql"
"""The rows of a database of version 0024 with runs of every source, dumped by SQLite: of two optimizers on three seeds
each that the bench trained, that another loop logged, and that were imported, and a run that went back to an earlier
step."""


def test_runs_of_every_source_that_an_earlier_version_wrote_have_its_means_and_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "bench.sqlite3"
    with ExitStack() as stack:
        database = Database(f"sqlite:///{path}")
        stack.callback(database.close)
        make_former(database, "0024")
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(WRITTEN.read_text())
        database.migrate()
        services = make_services(database)
        (experiment,) = services.experiments.page(limit=9)
        adapm, adamw = services.analysis.compare(experiment.id).rows
        assert (adapm.candidate, adapm.conclusion) == ("adapm", Conclusion.UNDECIDED) and adapm.difference is not None
        assert adapm.val_loss is not None and adamw.val_loss is not None
        figures = (adapm.val_loss.mean, adamw.val_loss.mean, adapm.difference.mean)
        assert figures == pytest.approx((2.3840424264378974, 2.4063648565661997, -0.022322430128302262), rel=1e-12)
        runs = services.external_runs
        for name, conclusion in (("a logged study", Conclusion.WORSE), ("an imported study", Conclusion.BETTER)):
            study = runs.experiment(name)
            rows = {row.candidate: row for row in judge(study, runs.runs(study.id), JudgementChoice()).rows}
            means = [row.loss.mean for row in (rows["muon"], rows["adamw"]) if row.loss is not None]
            assert means == pytest.approx([2.921, 3.02], rel=1e-12)
            assert {row.conclusion for row in rows.values()} == {Conclusion.BASELINE, conclusion}
        series = runs.series("log-muon-4")
        assert dict(zip(series.steps["val_loss"], series.values["val_loss"], strict=True)) == {0: 5.0, 25: 4.0}
