"""0010: what limits a run's time, the micro-batch it was cut down to, its trace, and the loss at a checkpoint.

Runs that are there have no limit; checkpoints that are there say nothing of a loss.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0008"

COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("max_seconds", sa.Double()),
    ("deadline_at", sa.Double()),
    ("limit_reached", sa.String(24)),
    ("micro_batch_sequences", sa.Integer()),
    ("trace_parent", sa.Text()),
)
OPEN = "deadline_at IS NOT NULL AND ended_at IS NULL"
STOPPING = "stop_requested_at IS NOT NULL"


def upgrade() -> None:
    """Add the columns, and the indexes by which runs are found whose deadline has come, or that are being stopped."""
    for name, kind in COLUMNS:
        op.add_column("runs", sa.Column(name, kind, nullable=True))
    op.add_column("runs", sa.Column("max_seconds_from", sa.Double(), server_default="0", nullable=False))
    op.add_column("checkpoints", sa.Column("val_loss", sa.Double(), nullable=True))
    _index("deadline", "deadline_at", OPEN)
    _index("stopping", "stop_requested_at", STOPPING)


def downgrade() -> None:
    """Forget them: runs that wait begin with the micro-batch of their specification, and none is stopped for time."""
    op.drop_index("ix_runs_stopping", "runs")
    op.drop_index("ix_runs_deadline", "runs")
    op.drop_column("checkpoints", "val_loss")
    op.drop_column("runs", "max_seconds_from")
    for name, _ in reversed(COLUMNS):
        op.drop_column("runs", name)


def _index(name: str, column: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(f"ix_runs_{name}", "runs", [column], unique=False, sqlite_where=where, postgresql_where=where)
