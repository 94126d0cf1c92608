"""0007: whether a sweep wants a run to finish with what there is. No run that is there belongs to a sweep."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column."""
    op.add_column("runs", sa.Column("stop_early", sa.Boolean(), nullable=True))


def downgrade() -> None:
    """Forget it: trials that were to be stopped go on to the end of their budget."""
    op.drop_column("runs", "stop_early")
