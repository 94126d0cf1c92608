"""0028: a view of a page is its address, which a bookmark keeps; the table of saved ones goes."""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Drop the table with the addresses in it."""
    op.execute("DROP TABLE IF EXISTS saved_views")
