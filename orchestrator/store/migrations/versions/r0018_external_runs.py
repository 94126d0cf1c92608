"""0018: runs that loops outside of the bench told of."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

BIG_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the three tables; nothing that was there is touched."""
    op.create_table(
        "external_experiments",
        sa.Column("number", BIG_SERIAL, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_external_experiments"),
        sa.UniqueConstraint("id", name="uq_external_experiments_id"),
        sa.UniqueConstraint("name", name="uq_external_experiments_name"),
    )
    op.create_table(
        "external_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("experiment_number", BIG_SERIAL, nullable=False),
        sa.Column("candidate", sa.Text(), nullable=False),
        sa.Column("lr", sa.Double(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("workload", sa.Text(), nullable=True),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("torn_lines", sa.BigInteger(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_external_runs"),
        sa.ForeignKeyConstraint(
            ["experiment_number"], ["external_experiments.number"], name="fk_external_runs_experiment_number"
        ),
    )
    op.create_index("ix_external_runs_experiment_number", "external_runs", ["experiment_number", "created_at"])
    op.create_table(
        "external_chunks",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "part", "first_line", name="pk_external_chunks"),
        sa.ForeignKeyConstraint(["run_id"], ["external_runs.id"], name="fk_external_chunks_run_id"),
    )
