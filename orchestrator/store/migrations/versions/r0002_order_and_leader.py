"""0002: the order of the queue (rank and turn), the node of an attempt, and the lease of the leading dispatcher.

Runs that wait keep their order: all of them get rank 0 and turn 0, and the order of submission decides as before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

WAITING = "status IN ('queued', 'retry_wait')"


def upgrade() -> None:
    """Add the columns, order the index of the queue by them, and make the leaders' table."""
    op.add_column("runs", sa.Column("rank", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("turn", sa.BigInteger(), server_default="0", nullable=False))
    _index_queue(["rank", "turn", "experiment_number", "position"])
    op.add_column("attempts", sa.Column("node", sa.Text(), nullable=True))
    op.create_table(
        "leaders",
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("role", name="pk_leaders"),
    )


def downgrade() -> None:
    """Back to the order of submission and to one dispatcher."""
    op.drop_table("leaders")
    op.drop_column("attempts", "node")
    _index_queue(["experiment_number", "position"])
    op.drop_column("runs", "turn")
    op.drop_column("runs", "rank")


def _index_queue(columns: list[str]) -> None:
    op.drop_index("ix_runs_queue", "runs")
    op.create_index(
        "ix_runs_queue",
        "runs",
        columns,
        unique=False,
        sqlite_where=sa.text(WAITING),
        postgresql_where=sa.text(WAITING),
    )
