"""0015: experiments keep the trace of their submission, for the runs that they get later."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column; experiments that are there have the trace of their runs."""
    op.add_column("experiments", sa.Column("trace_parent", sa.Text(), nullable=True))
    of_its_runs = "select max(trace_parent) from runs where runs.experiment_number = experiments.number"
    op.execute(f"update experiments set trace_parent = ({of_its_runs})")  # noqa: S608 - nothing of it is given


def downgrade() -> None:
    """Forget it."""
    op.drop_column("experiments", "trace_parent")
