"""0006: whether runs that an experiment gets later wait for a resume. None was asked to."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column."""
    op.add_column("experiments", sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Forget it: runs that are paused stay so, and those that follow are queued."""
    op.drop_column("experiments", "paused")
