"""0003: delivered entries leave the outbox, and the orders in which lists of runs are sorted have indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Forget what was delivered."""
    op.drop_index("ix_outbox_pending", table_name="outbox")
    op.execute("DELETE FROM outbox WHERE delivered_at IS NOT NULL")
    op.drop_column("outbox", "delivered_at")


def downgrade() -> None:
    """Every entry that is left is undelivered."""
    op.add_column("outbox", sa.Column("delivered_at", sa.Double(), nullable=True))
    is_pending = sa.text("delivered_at IS NULL")
    op.create_index("ix_outbox_pending", "outbox", ["id"], sqlite_where=is_pending, postgresql_where=is_pending)
