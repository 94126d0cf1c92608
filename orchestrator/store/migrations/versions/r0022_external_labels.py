"""0022: labels of experiments of external runs."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add the column; what was there has none."""
    op.add_column("external_experiments", sa.Column("labels", sa.Text(), nullable=False, server_default="[]"))
