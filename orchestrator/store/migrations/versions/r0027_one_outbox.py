"""0027: the ends that webhooks hear of are entries of the outbox."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

KINDS = ("experiment_submitted", "run_ended", "experiment_ended")


def upgrade() -> None:
    """Let the outbox have that kind, and move the entries there."""
    if not sa.inspect(op.get_bind()).has_table("webhook_endings"):
        return
    if op.get_bind().dialect.name == "sqlite":  # changes no constraint of a table that is there
        op.rename_table("outbox", "outbox_before")
        _make_outbox()
        op.execute("INSERT INTO outbox SELECT * FROM outbox_before")
        op.drop_table("outbox_before")
    else:
        op.drop_constraint("ck_outbox_kind", "outbox", type_="check")
        op.create_check_constraint("ck_outbox_kind", "outbox", sa.column("kind").in_(KINDS))
    op.execute(
        "INSERT INTO outbox (kind, experiment_id, created_at, available_at) "
        "SELECT 'experiment_ended', experiment_id, created_at, created_at FROM webhook_endings "
        "WHERE experiment_id IN (SELECT id FROM experiments) ORDER BY id"
    )
    op.drop_table("webhook_endings")


def _make_outbox() -> None:
    kind = sa.Enum(*KINDS, name="ck_outbox_kind", native_enum=False, create_constraint=True, length=24)
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", kind, nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name="fk_outbox_experiment_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_outbox_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    )
