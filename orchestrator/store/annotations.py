"""Labels and notes in the database: read with their experiments, changed under the lock of the experiment's row."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.annotations import AnnotationChange, Note
from orchestrator.errors import ChangedMeanwhileError, DeletedError
from orchestrator.store.database import Database
from orchestrator.store.ids import validate_id
from orchestrator.store.notifications import count_change
from orchestrator.store.run_rows import lock_experiment
from orchestrator.store.tables import experiments, keys


def has_labels(table: sa.Table, labels: Collection[str]) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that a row has all of these labels; LIKE would ignore case on SQLite."""
    column = sa.type_coerce(table.c.labels, sa.Text)
    return [sa.func.replace(column, f",{validate_id(label)},", "") != column for label in labels]


def read_notes(connection: Connection, rows: Sequence[sa.Row[Any]]) -> dict[int, Note]:
    """Return the notes of these experiments, by their numbers."""
    # The labels of the keys that edited the notes; of most lists none did.
    ids = {row.noted_by for row in rows if row.note is not None and row.noted_by is not None}
    query = sa.select(keys.c.id, keys.c.label).where(keys.c.id.in_(sorted(ids)))
    editors = {row.id: row.label for row in connection.execute(query)} if ids else {}
    return {
        row.number: Note(
            text=row.note, edited_at=row.noted_at, edited_by=row.noted_by, editor=editors.get(row.noted_by)
        )
        for row in rows
        if row.note is not None
    }


def change(
    database: Database,
    connection: Connection,
    experiment_id: str,
    wanted: AnnotationChange,
    *,
    revision: int | None = None,
    by: str | None = None,
) -> None:
    """Change labels and note; what is wanted already changes nothing, not even who edited last. Until the transaction
    ends the experiment is locked: what is read of it there is what it is after the change.

    Raises `NotFoundError`, and `ChangedMeanwhileError` if `revision` is given and is not the newest: else of two people
    who edit at once the first one's words would be lost.
    """
    row = lock_experiment(connection, experiment_id)
    if row.deleted_at is not None:
        message = f"experiment {row.id} was deleted; `adapm-bench delete {row.id} --undo` comes before its editing"
        raise DeletedError(message, row.id)
    if revision is not None and revision != row.revision:
        raise ChangedMeanwhileError(
            f"the labels or the note of experiment {row.id} were changed meanwhile: they are at revision "
            f"{row.revision}, not {revision}; read them again, then write"
        )
    values: dict[str, object] = {}
    if "note" in wanted.model_fields_set and (text := wanted.note or None) != row.note:
        values = {"note": text, "noted_at": database.read_clock(connection), "noted_by": by}
    if "labels" in wanted.model_fields_set and (labels := wanted.labels or ()) != row.labels:
        values["labels"] = labels
    if not values:
        return
    query = sa.update(experiments).where(experiments.c.number == row.number)
    connection.execute(query.values(revision=experiments.c.revision + 1, **values))
    count_change(connection)
