"""Looking after a database: its revision, its health, its copy and its space, on SQLite and PostgreSQL."""

import os
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from orchestrator.errors import StoreError
from orchestrator.jobs import AttemptOutcome, RunAction, RunStatus
from orchestrator.retention.checkpoints import Keep, count_kept_checkpoints, prune
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database, newest_migration
from orchestrator.store.queue.queue import Queue
from orchestrator.store.tables import runs
from tests.contract.conftest import POLICY, Store
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, batch, claim, comparison_spec, require_postgresql, result
from worker.records.protocol import CheckpointNotice


def test_a_database_that_was_used_is_sound(store: Store) -> None:
    store.experiments.submit(comparison_spec())
    lease = store.start()
    store.attempts.append_points(lease.run_id, 1, lease.token, batch(0, range(5)))
    store.attempts.finish(lease.run_id, 1, lease.token, result())
    assert maintenance.revision(store.database) == (newest_migration(), newest_migration())
    assert maintenance.faults(store.database) == ()


def test_a_run_whose_state_contradicts_its_result_is_found(store: Store) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
    with store.database.writing() as connection:
        lie = sa.update(runs).values(status=RunStatus.SUCCEEDED, ended_at=1.0)
        connection.execute(lie)
    assert maintenance.faults(store.database) == (f"run {experiment.id}-0000 succeeded without a result",)


def test_a_schema_that_is_too_old_is_found_and_named(store: Store) -> None:
    with store.database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    try:
        (fault,) = maintenance.faults(store.database)
        assert "the schema is 0001, which is older than 0024" in fault
    finally:
        with store.database.writing() as connection:
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{newest_migration()}'")


def test_a_backup_of_sqlite_holds_everything_while_it_is_written_to(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bench.sqlite3'}"
    database = Database(url)
    database.migrate()
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE change_counters SET value = 5")
        maintenance.backup(url, tmp_path / "copies" / "copy.sqlite3")
    database.close()
    copy = Database(f"sqlite:///{tmp_path / 'copies' / 'copy.sqlite3'}")
    assert maintenance.faults(copy) == ()
    with copy.reading() as connection:
        assert connection.exec_driver_sql("SELECT max(value) FROM change_counters").scalar_one() == 0
    copy.close()
    with pytest.raises(StoreError, match="exists already"):
        maintenance.backup(url, tmp_path / "copies" / "copy.sqlite3")
    with pytest.raises(StoreError, match="there is no database"):
        maintenance.backup(f"sqlite:///{tmp_path / 'nothing'}", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_damaged_sqlite_file_is_found(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'bench.sqlite3'}")
    database.migrate()
    database.close()
    with sqlite3.connect(tmp_path / "bench.sqlite3") as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("INSERT INTO run_specs (run_id, spec) VALUES ('nobody', '{}')")
    raw.close()
    assert maintenance.faults(database) == (
        "run_specs: a row refers to no runs",
        "run_specs nobody: the stored specification cannot be read (workload: Field required)",
    )
    database.close()


def test_a_backup_of_postgresql_is_pg_dumps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(StoreError, match="needs pg_dump"):
        maintenance.backup("postgresql://bench:secret@/bench", tmp_path / "dump")


@pytest.mark.postgres
def test_a_backup_of_postgresql_comes_back_by_the_command_that_is_told(
    postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run in flight included: its worker goes on with the restored database. No password is in the command."""
    monkeypatch.setenv("PATH", str(require_postgresql()), prepend=os.pathsep)
    source, target = (postgresql.url(postgresql.create_database()) for _ in range(2))
    with closing(Database(source)) as database:
        database.migrate()
        services = make_services(database, tmp_path, POLICY)
        experiment = services.experiments.submit(comparison_spec()).experiment
        (lease,) = claim(Queue(database, POLICY), cpus=1, limit=1)
        services.attempts.hello(lease.run_id, 1, lease.token)
        original = services.experiments.get(experiment.id)
    maintenance.backup(source, tmp_path / "dump")
    command = maintenance.restore_command(target.replace("bench@", "bench:secret@"), tmp_path / "dump")
    assert "secret" not in command
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    with closing(Database(target)) as restored:
        services = make_services(restored, tmp_path, POLICY)
        assert services.experiments.get(experiment.id) == original
        assert maintenance.faults(restored) == ()
        services.attempts.finish(lease.run_id, 1, lease.token, result())
        assert services.runs.get(lease.run_id).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(("keep", "left"), [("last", [40]), ("none", [])])
def test_only_ended_runs_lose_checkpoints_and_only_what_they_do_not_keep(
    store: Store, tmp_path: Path, keep: str, left: list[int]
) -> None:
    ended, live = one_cancelled_of_two(store, tmp_path)
    assert prune(store.database, tmp_path, keep) == (ended,)  # type: ignore[arg-type]
    assert [notice.step for notice in store.runs.checkpoints(ended)] == left
    assert sorted(path.name for path in (tmp_path / ended).glob("checkpoints/*.pt")) == [
        f"step-{step:09d}.pt" for step in left
    ]
    assert len(list((tmp_path / live).glob("checkpoints/*"))) == 4
    pruned_ids = prune(store.database, tmp_path, keep)  # type: ignore[arg-type]
    assert pruned_ids == ()


def test_a_run_that_is_retried_after_it_was_looked_at_keeps_its_checkpoints(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, _ = one_cancelled_of_two(store, tmp_path)

    def retried_meanwhile(status: RunStatus, keep: Keep) -> int:
        store.runs.apply(ended, RunAction.RETRY)
        return count_kept_checkpoints(status, keep)

    monkeypatch.setattr("orchestrator.retention.checkpoints.count_kept_checkpoints", retried_meanwhile)
    assert prune(store.database, tmp_path, "none") == ()
    assert len(list((tmp_path / ended).glob("checkpoints/*"))) == 4
    assert [notice.step for notice in store.runs.checkpoints(ended)] == [20, 40]


def one_cancelled_of_two(store: Store, tmp_path: Path) -> tuple[str, str]:
    """Two runs with two checkpoints each: the one that was cancelled, and the one that is live."""
    store.experiments.submit(comparison_spec(seeds=(1, 2), steps=100))
    leases = store.start_next(2)
    for lease in leases:
        folder = tmp_path / lease.run_id / "checkpoints"
        folder.mkdir(parents=True)
        for step in (20, 40):
            for ending in ("pt", "json"):
                (folder / f"step-{step:09d}.{ending}").touch()
            notice = CheckpointNotice(step=step, path=str(folder), size_bytes=1, sha256="a")
            store.attempts.checkpoint(lease.run_id, 1, lease.token, notice)
    ended, live = (lease.run_id for lease in leases)
    store.runs.apply(ended, RunAction.CANCEL)
    store.database.clock_offset_seconds += 100
    for run_id, attempt in store.queue.overdue_cancels():
        store.queue.release(run_id, attempt, AttemptOutcome.LOST, "ended")
    assert store.runs.get(ended).status is RunStatus.CANCELLED
    return ended, live
