"""0016: attempts know the warm actor that carries them out."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the column; actors of attempts that are under way are named after them."""
    op.add_column("attempts", sa.Column("actor", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("attempts", "actor")
