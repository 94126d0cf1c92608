"""0023: attempts without the names of their actors, which follow from run and attempt."""

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Drop the column."""
    op.drop_column("attempts", "actor")
