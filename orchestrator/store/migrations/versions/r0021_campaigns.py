"""0021: campaigns of tries at improvement, their experiments and their ledgers."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

BIG_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the three tables; nothing that was there is touched."""
    op.create_table(
        "campaigns",
        sa.Column("number", BIG_SERIAL, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_campaigns"),
        sa.UniqueConstraint("id", name="uq_campaigns_id"),
    )
    op.create_table(
        "campaign_experiments",
        sa.Column("campaign_number", BIG_SERIAL, nullable=False, autoincrement=False),
        sa.Column("place", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("workload", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("experiment_number", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("campaign_number", "place", "workload", name="pk_campaign_experiments"),
        sa.UniqueConstraint("experiment_number", name="uq_campaign_experiments_experiment_number"),
        sa.ForeignKeyConstraint(
            ["campaign_number"], ["campaigns.number"], name="fk_campaign_experiments_campaign_number"
        ),
    )
    op.create_table(
        "campaign_entries",
        sa.Column("campaign_number", BIG_SERIAL, nullable=False, autoincrement=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("campaign_number", "number", name="pk_campaign_entries"),
        sa.UniqueConstraint("idempotency_key", name="uq_campaign_entries_idempotency_key"),
        sa.ForeignKeyConstraint(["campaign_number"], ["campaigns.number"], name="fk_campaign_entries_campaign_number"),
    )
