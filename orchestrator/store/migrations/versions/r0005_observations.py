"""0005: what probes saw."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "observations",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("probe", sa.Text, nullable=False),
        sa.Column("blocks", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", "probe", name="pk_observations"),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempts.run_id", "attempts.attempt"],
            name="fk_observations_run_id_attempt",
        ),
    )


def downgrade() -> None:
    """Drop it with all that it holds."""
    op.drop_table("observations")
