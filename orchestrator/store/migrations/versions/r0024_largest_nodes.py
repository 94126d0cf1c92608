"""0024: the largest machines of the cluster, as whoever dispatches sees them."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Add the column; it is empty until a dispatcher has looked."""
    op.add_column("leaders", sa.Column("nodes", sa.Text(), nullable=True))
