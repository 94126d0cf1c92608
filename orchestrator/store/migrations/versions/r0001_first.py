"""0001: experiments, runs, attempts, results, events, series, checkpoints, the outbox and the change counters.

It spells everything out and shares nothing with `tables.py`, so that it still makes the same schema when that changes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

STATUSES = (
    "queued",
    "leased",
    "running",
    "retry_wait",
    "pausing",
    "paused",
    "cancelling",
    "cancelled",
    "succeeded",
    "failed",
)
OUTCOMES = ("succeeded", "lost", "broken", "interrupted", "stopped")
OUTBOX_KINDS = ("experiment_submitted", "run_ended")
BIG_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLES = (
    "experiments",
    "runs",
    "run_specs",
    "attempts",
    "results",
    "events",
    "chunks",
    "checkpoints",
    "outbox",
    "change_counters",
)
"""In the order of their making."""


def upgrade() -> None:
    """Make the tables and one row for each change counter."""
    _make_experiments()
    _make_runs()
    _make_run_specs()
    _make_attempts()
    _make_results()
    _make_events()
    _make_chunks()
    _make_checkpoints()
    _make_outbox()
    _make_change_counters()
    counters = sa.table("change_counters", sa.column("shard"), sa.column("value"))
    op.bulk_insert(counters, [{"shard": shard, "value": 0} for shard in range(16)])


def downgrade() -> None:
    """Drop everything."""
    for table in reversed(TABLES):
        op.drop_table(table)


def _words(name: str, values: tuple[str, ...]) -> sa.Enum:
    return sa.Enum(*values, name=name, native_enum=False, create_constraint=True, length=24)


def _make_experiments() -> None:
    op.create_table(
        "experiments",
        sa.Column("number", BIG_SERIAL, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("spec_hash", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_experiments"),
        sa.UniqueConstraint("id", name="uq_experiments_id"),
        sa.UniqueConstraint("idempotency_key", name="uq_experiments_idempotency_key"),
    )


def _make_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("experiment_number", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.Text(), nullable=False),
        sa.Column("optimizer", sa.Text(), nullable=False),
        sa.Column("lr", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("steps_total", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("status", _words("ck_runs_status", STATUSES), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("schedulable", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("stop_requested_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("device_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("last_train_loss", sa.Double(), nullable=True),
        sa.Column("last_val_loss", sa.Double(), nullable=True),
        sa.Column("tokens_per_second", sa.Double(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "(status in ('cancelling', 'pausing')) = (stop_requested_at is not null)", name="ck_runs_stop_has_a_moment"
        ),
        sa.CheckConstraint(
            "(status in ('succeeded', 'failed', 'cancelled')) = (ended_at is not null)",
            name="ck_runs_ended_when_terminal",
        ),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name="fk_runs_experiment_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("experiment_number", "position", name="uq_runs_experiment_number_position"),
    )
    op.create_index(
        "ix_runs_queue",
        "runs",
        ["experiment_number", "position"],
        unique=False,
        sqlite_where=sa.text("status IN ('queued', 'retry_wait')"),
        postgresql_where=sa.text("status IN ('queued', 'retry_wait')"),
    )


def _make_run_specs() -> None:
    op.create_table(
        "run_specs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_specs_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_specs"),
    )


def _make_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("leased_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", _words("ck_attempts_outcome", OUTCOMES), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("step", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("device_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("last_batch", sa.BigInteger(), server_default="-1", nullable=False),
        sa.CheckConstraint("(outcome is null) = (ended_at is null)", name="ck_attempts_ends_with_an_outcome"),
        sa.CheckConstraint("attempt >= 1", name="ck_attempts_counts_from_one"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_attempts_run_id"),
        sa.PrimaryKeyConstraint("run_id", "attempt", name="pk_attempts"),
    )
    op.create_index(
        "ix_attempts_expiry",
        "attempts",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "uq_attempts_live",
        "attempts",
        ["run_id"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def _make_results() -> None:
    op.create_table(
        "results",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("recorded_at", sa.Double(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("final_val_loss", sa.Double(), nullable=True),
        sa.Column("result", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"], name="fk_results_run_id_attempt"
        ),
        sa.PrimaryKeyConstraint("run_id", name="pk_results"),
    )


def _make_events() -> None:
    op.create_table(
        "events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("from_status", _words("ck_events_from_status", STATUSES), nullable=True),
        sa.Column("to_status", _words("ck_events_to_status", STATUSES), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint("(sequence = 1) = (from_status is null)", name="ck_events_begins_with_submit"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id"),
        sa.PrimaryKeyConstraint("run_id", "sequence", name="pk_events"),
    )


def _make_chunks() -> None:
    op.create_table(
        "chunks",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"], name="fk_chunks_run_id_attempt"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "sequence", name="pk_chunks"),
    )


def _make_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"], name="fk_checkpoints_run_id_attempt"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name="pk_checkpoints"),
    )


def _make_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", BIG_SERIAL, nullable=False),
        sa.Column("kind", _words("ck_outbox_kind", OUTBOX_KINDS), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name="fk_outbox_experiment_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_outbox_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    )
    op.create_index(
        "ix_outbox_pending",
        "outbox",
        ["id"],
        unique=False,
        sqlite_where=sa.text("delivered_at IS NULL"),
        postgresql_where=sa.text("delivered_at IS NULL"),
    )


def _make_change_counters() -> None:
    op.create_table(
        "change_counters",
        sa.Column("shard", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("shard", name="pk_change_counters"),
    )
