"""0014: webhooks, the ends that they still have to be told of, and the messages that tell them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

WAITING = sa.text("state = 'waiting'")


def upgrade() -> None:
    """Make the tables: nobody is told of anything yet."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        sa.UniqueConstraint("idempotency_key", name="uq_webhooks_idempotency_key"),
    )
    op.create_table(
        "webhook_endings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endings"),
    )
    op.create_table(
        "webhook_messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("settled_at", sa.Double(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('experiment.ended', 'webhook.test')", name="ck_webhook_messages_kind"),
        sa.CheckConstraint("state IN ('waiting', 'delivered', 'given_up')", name="ck_webhook_messages_state"),
        sa.CheckConstraint(
            "(state = 'waiting') = (settled_at is null)", name="ck_webhook_messages_settled_has_a_moment"
        ),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name="fk_webhook_messages_webhook_id"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_messages"),
    )
    op.create_index("ix_webhook_messages_webhook_id", "webhook_messages", ["webhook_id", "created_at"])
    op.create_index(
        "ix_webhook_messages_waiting",
        "webhook_messages",
        ["available_at"],
        sqlite_where=WAITING,
        postgresql_where=WAITING,
    )


def downgrade() -> None:
    """Forget them: what was not delivered is not told any more."""
    op.drop_table("webhook_messages")
    op.drop_table("webhook_endings")
    op.drop_table("webhooks")
