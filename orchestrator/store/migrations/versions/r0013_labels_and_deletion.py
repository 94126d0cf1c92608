"""0013: labels, a note and its last edit, where an experiment was cloned from, when it was deleted; what was removed.

No experiment that is there has any of it.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("note", sa.Text()),
    ("noted_at", sa.Double()),
    ("noted_by", sa.Text()),
    ("cloned_from", sa.Text()),
    ("deleted_at", sa.Double()),
    ("undo_until", sa.Double()),
)


def upgrade() -> None:
    """Add the columns and tables, and the index by which the few deleted experiments are found."""
    for name, kind in COLUMNS:
        op.add_column("experiments", sa.Column(name, kind, nullable=True))
    op.add_column("experiments", sa.Column("revision", sa.BigInteger(), server_default="0", nullable=False))
    where = sa.text("deleted_at IS NOT NULL")
    op.create_index("ix_experiments_deleted", "experiments", ["deleted_at"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "labels",
        sa.Column("experiment_number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_number"], ["experiments.number"], name="fk_labels_experiment_number"),
        sa.PrimaryKeyConstraint("experiment_number", "label", name="pk_labels"),
    )
    op.create_index("ix_labels_label", "labels", ["label", "experiment_number"])
    op.create_table(
        "removed",
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("what", name="pk_removed"),
    )


def downgrade() -> None:
    """Forget all of it: what is deleted and not yet removed is listed again, and counters lose what was removed."""
    op.drop_table("removed")
    op.drop_index("ix_labels_label", "labels")
    op.drop_table("labels")
    op.drop_index("ix_experiments_deleted", "experiments")
    op.drop_column("experiments", "revision")
    for name, _ in reversed(COLUMNS):
        op.drop_column("experiments", name)
