"""0020: what models wrote at evaluations."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Make the table; nothing that was there is touched."""
    op.create_table(
        "samples",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("texts", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name="pk_samples"),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"], name="fk_samples_run_id_attempt"
        ),
    )
