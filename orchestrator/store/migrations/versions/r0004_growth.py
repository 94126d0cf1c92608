"""0004: whether an experiment may still get runs (tuned comparisons). Those that are there have all of theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column."""
    op.add_column("experiments", sa.Column("growing", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Forget it: experiments in the middle of their tuning stay as they are."""
    op.drop_column("experiments", "growing")
