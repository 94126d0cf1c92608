"""r0002: the labels of an experiment are a column; those of experiments of external runs have the same form."""

import json

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"


def upgrade() -> None:
    """Move the rows of `labels` and the JSON of external experiments into columns of text: `,paper,tiny,`."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT experiment_number, label FROM labels ORDER BY lower(label), label")).all()
    external = connection.execute(sa.text("SELECT number, labels FROM external_experiments")).all()
    op.drop_table("labels")
    op.drop_column("external_experiments", "labels")
    labels_by_number: dict[int, list[str]] = {}
    for number, label in rows:
        labels_by_number.setdefault(number, []).append(label)
    for name, moved in (("experiments", labels_by_number.items()), ("external_experiments", map(_readable, external))):
        op.add_column(name, sa.Column("labels", sa.Text(), nullable=False, server_default=""))
        table = sa.table(name, sa.column("number"), sa.column("labels"))
        for number, labels in moved:
            text = "".join(f"{label}," for label in ("", *labels)) if labels else ""
            connection.execute(sa.update(table).where(table.c.number == number).values(labels=text))


def _readable(row: sa.Row[int, str]) -> tuple[int, list[str]]:
    """Return the number and the labels of a row with JSON; none of a damaged one."""
    try:
        return row[0], [label for label in json.loads(row[1]) if isinstance(label, str)]
    except (ValueError, TypeError):
        return row[0], []
