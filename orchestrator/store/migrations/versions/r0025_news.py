"""0025: what follows from ended runs is added by a loop, which finds experiments by their news."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Add the column; whatever still grows is looked at once."""
    op.add_column("experiments", sa.Column("news", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE experiments SET news = 1 WHERE growing AND kind <> 'sweep'")
