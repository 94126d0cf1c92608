"""0012: how many processes train a run together, each on a device of its own: one for each GPU, so far."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0010"


def upgrade() -> None:
    """Add the column; a specification's CPUs are those of each process from now on."""
    op.add_column("runs", sa.Column("processes", sa.Integer(), server_default="1", nullable=False))
    op.execute("update runs set processes = gpus, cpus = cpus * gpus where gpus > 1")


def downgrade() -> None:
    """Forget it."""
    op.execute("update runs set cpus = cpus / processes where processes > 1")
    op.drop_column("runs", "processes")
