"""0008: keys, sessions, the audit log; experiments remember who submitted them, attempts whom they are charged to."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the tables and add the columns: what is there already belongs to nobody."""
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(24), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("runs_at_once", sa.Integer(), nullable=True),
        sa.Column("device_hours_a_day", sa.Double(), nullable=True),
        sa.CheckConstraint("scope IN ('viewer', 'submitter', 'admin')", name="ck_keys_scope"),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_sessions_key_id"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_sessions"),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.add_column("experiments", sa.Column("key_id", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("key_id", sa.Text(), nullable=True))
    charged = sa.text("key_id IS NOT NULL")
    op.create_index(
        "ix_attempts_charged", "attempts", ["key_id", "ended_at"], sqlite_where=charged, postgresql_where=charged
    )


def downgrade() -> None:
    """Forget who submitted what: the service is closed to the network again, and has no quotas."""
    op.drop_index("ix_attempts_charged", "attempts")
    op.drop_column("attempts", "key_id")
    op.drop_column("experiments", "key_id")
    op.drop_table("audit")
    op.drop_table("sessions")
    op.drop_table("keys")
