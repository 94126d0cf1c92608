"""A damaged row of any table fails alone: every list and every page of sound data works; the check names it.

The columns are those of the schema that have JSON, words or bytes: a new one is damaged here without a word.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard
from starlette.testclient import TestClient

from api.auth.scopes import GUARDED_ROUTES
from orchestrator.jobs import TimeLimit
from orchestrator.keys import KeyRequest, Scope
from orchestrator.store.admin import maintenance
from orchestrator.store.column_types import JsonText, Words
from orchestrator.store.database import Database
from orchestrator.store.integrity import checksum
from orchestrator.store.tables import (
    attempts,
    experiments,
    leaders,
    metadata,
    outbox,
    runs,
    samples,
    webhook_messages,
    webhooks,
)
from tests.factories.external_runs import batch, header
from tests.witnesses.product import client_of, opened, unpacked

COLUMNS = [
    column
    for table in metadata.sorted_tables
    for column in table.c
    if column in maintenance.CONTENTS or isinstance(column.type, JsonText | Words | sa.LargeBinary)
]
DAMAGES: tuple[object, ...] = ("javascript:alert(1)", b"\xff\xfe{")
SLOW = ("/memory", "/studies", "/docs", "/static", "openapi", "/events", "/stream")
"""Or endless, and of no row."""


@dataclass(frozen=True)
class House:
    """A service that has rows in every table, two of most."""

    client: TestClient
    database: Database
    lists: tuple[str, ...]
    whole: tuple[str, ...]
    """Pages and answers of what is not damaged: the newest of everything."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened(unpacked(tmp_path_factory.mktemp("damaged"))) as folder, client_of(folder.app) as client:
        services = folder.services
        newest = services.experiments.page(limit=1)[0].id
        fill(folder.database, services)
        services.keyring.create(KeyRequest(label="first", scope=Scope.VIEWER))
        secret = services.keyring.create(KeyRequest(label="admin", scope=Scope.ADMIN)).secret
        client.headers["Authorization"] = f"Bearer {secret}"
        gets = [
            guarded_route.route.removeprefix("GET ")
            for guarded_route in GUARDED_ROUTES
            if guarded_route.route.startswith("GET ")
        ]
        plain = [path for path in gets if "{" not in path and not any(part in path for part in SLOW)]
        lists = tuple(path for path in plain if client.get(path).status_code < 400)
        assert {"/", "/v1/experiments", "/v1/runs", "/v1/external-experiments"} < set(lists)
        external = services.external_runs.experiments(limit=1)[0].id
        whole = (
            f"/experiments/{newest}",
            f"/v1/experiments/{newest}/comparison",
            f"/runs/{newest}-0000",
            f"/experiments/{external}",
            f"/v1/external-experiments/{external}/runs",
            "/v1/webhooks/hook/deliveries",
        )
        assert maintenance.faults(folder.database) == ()
        yield House(client, folder.database, lists, whole)
        assert maintenance.faults(folder.database) == (), "each damage was undone"


def fill(database: Database, services: Any) -> None:
    """Rows of the tables that the stored folder has none of."""
    for name in ("first", "second"):
        services.external_runs.append(f"run-{name}", batch({0: 3.0, 1: 2.0}, run=header(experiment=name)))
    with database.writing() as connection:
        run_id, attempt = connection.execute(sa.select(attempts.c.run_id, attempts.c.attempt).limit(1)).one()
        texts = zstandard.compress(b"[]")
        row = {"run_id": run_id, "attempt": attempt, "step": 1, "texts": texts, "checksum": checksum(texts)}
        connection.execute(sa.insert(samples).values(row))
        connection.execute(sa.delete(leaders))
        row = {"role": "dispatcher", "holder": "nobody", "term": 1, "expires_at": 1e12}
        connection.execute(sa.insert(leaders).values(row))
        connection.execute(sa.insert(webhooks).values(id="hook", url="https://a.b/", secret_hash="", created_at=1.0))
        row = {"webhook_id": "hook", "kind": "webhook.test", "body": "{}", "state": "waiting", "created_at": 1.0}
        connection.execute(sa.insert(webhook_messages).values(row | {"id": "message", "available_at": 1e12}))
        experiment = connection.execute(sa.select(experiments.c.id).limit(1)).scalar_one()
        row = {"kind": "experiment_submitted", "experiment_id": experiment, "created_at": 1.0, "available_at": 1e12}
        connection.execute(sa.insert(outbox).values(row))
        connection.execute(sa.update(runs).values(limit_reached=TimeLimit.DEADLINE_SECONDS).where(runs.c.id == run_id))


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_a_damaged_row_fails_alone(house: House, column: sa.Column[Any]) -> None:
    table, key = column.table.name, [key_column.name for key_column in column.table.primary_key]
    for damage in DAMAGES if isinstance(column.type, JsonText) else DAMAGES[:1]:
        value = str(damage).encode() if isinstance(column.type, sa.LargeBinary) else damage
        with house.database.writing() as connection:
            query = f"SELECT rowid, {column.name}, {', '.join(key)} FROM {table} ORDER BY rowid LIMIT 1"
            rowid, original, *keys = connection.exec_driver_sql(query).one()
            set_to(connection, column, rowid, value)
        try:
            answers = {address: house.client.get(address) for address in (*house.lists, *house.whole)}
            broken = {address: answer.text[-2000:] for address, answer in answers.items() if answer.status_code >= 400}
            faults = maintenance.faults(house.database)
        finally:
            with house.database.writing() as connection:
                set_to(connection, column, rowid, original)
        assert broken == {}
        assert any(fault.startswith(f"{table} {' '.join(map(str, keys))}: ") for fault in faults), faults


def set_to(connection: sa.Connection, column: sa.Column[Any], rowid: int, value: object) -> None:
    """Set a column regardless of the schema's constraints, as a disk would."""
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
    text = "CAST(? AS TEXT)" if not isinstance(column.type, sa.LargeBinary) else "?"
    update = f"UPDATE {column.table.name} SET {column.name} = {text} WHERE rowid = ?"
    connection.exec_driver_sql(update, (value, rowid))
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")


def test_every_column_of_bytes_is_read_by_the_check() -> None:
    bytes_columns = {column for column in COLUMNS if isinstance(column.type, sa.LargeBinary)}
    assert bytes_columns <= set(maintenance.CONTENTS)
