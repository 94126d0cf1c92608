"""0017: the schema of the first release.

It spells everything out and shares nothing with `tables.py`, so that it still makes the same schema when that changes.
A table's last columns are the ones that came to it last: a database that was there before has them so.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
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
SCOPES = ("viewer", "submitter", "admin")
MESSAGE_KINDS = ("experiment.ended", "webhook.test")
DELIVERY_STATES = ("waiting", "delivered", "given_up")
BIG_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables and one row for each change counter."""
    _make_experiments()
    _make_runs()
    _make_attempts()
    _make_results()
    _make_series()
    _make_checkpoints()
    _make_outbox()
    _make_leaders()
    _make_keys()
    _make_webhooks()
    _make_change_counters()


def _words(name: str, values: tuple[str, ...]) -> sa.Enum:
    return sa.Enum(*values, name=name, native_enum=False, create_constraint=True, length=24)


def _index(name: str, table: str, columns: list[str], where: str | None = None, *, unique: bool = False) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _make_experiments() -> None:
    """With their labels, and the sums over what was removed with deleted ones."""
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
        sa.Column("growing", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("noted_at", sa.Double(), nullable=True),
        sa.Column("noted_by", sa.Text(), nullable=True),
        sa.Column("cloned_from", sa.Text(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("undo_until", sa.Double(), nullable=True),
        sa.Column("revision", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("trace_parent", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_experiments"),
        sa.UniqueConstraint("id", name="uq_experiments_id"),
        sa.UniqueConstraint("idempotency_key", name="uq_experiments_idempotency_key"),
    )
    _index("ix_experiments_deleted", "experiments", ["deleted_at"], "deleted_at IS NOT NULL")
    op.create_table(
        "labels",
        sa.Column("experiment_number", BIG_SERIAL, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_number"], ["experiments.number"], name="fk_labels_experiment_number"),
        sa.PrimaryKeyConstraint("experiment_number", "label", name="pk_labels"),
    )
    _index("ix_labels_label", "labels", ["label", "experiment_number"])
    op.create_table(
        "removed",
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("what", name="pk_removed"),
    )


def _make_runs() -> None:
    """With their specifications and the events of each."""
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
        sa.Column("rank", sa.Integer(), server_default="0", nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("stop_early", sa.Boolean(), nullable=True),
        sa.Column("max_seconds", sa.Double(), nullable=True),
        sa.Column("deadline_at", sa.Double(), nullable=True),
        # A word that nothing checks: it came to a table that was there, and SQLite adds no CHECK to one.
        sa.Column("limit_reached", sa.String(24), nullable=True),
        sa.Column("micro_batch_sequences", sa.Integer(), nullable=True),
        sa.Column("trace_parent", sa.Text(), nullable=True),
        sa.Column("max_seconds_from", sa.Double(), server_default="0", nullable=False),
        sa.Column("processes", sa.Integer(), server_default="1", nullable=False),
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
    queue_order = ["rank", "turn", "experiment_number", "position"]
    _index("ix_runs_queue", "runs", queue_order, "status IN ('queued', 'retry_wait')")
    _index("ix_runs_deadline", "runs", ["deadline_at"], "deadline_at IS NOT NULL AND ended_at IS NULL")
    _index("ix_runs_stopping", "runs", ["stop_requested_at"], "stop_requested_at IS NOT NULL")
    op.create_table(
        "run_specs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_specs_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_specs"),
    )
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
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.CheckConstraint("(outcome is null) = (ended_at is null)", name="ck_attempts_ends_with_an_outcome"),
        sa.CheckConstraint("attempt >= 1", name="ck_attempts_counts_from_one"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_attempts_run_id"),
        sa.PrimaryKeyConstraint("run_id", "attempt", name="pk_attempts"),
    )
    _index("ix_attempts_expiry", "attempts", ["expires_at"], "ended_at IS NULL")
    _index("uq_attempts_live", "attempts", ["run_id"], "ended_at IS NULL", unique=True)
    _index("ix_attempts_charged", "attempts", ["key_id", "ended_at"], "key_id IS NOT NULL")


def _attempt_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"], name=f"fk_{table}_run_id_attempt"
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
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        _attempt_key("results"),
        sa.PrimaryKeyConstraint("run_id", name="pk_results"),
    )


def _make_series() -> None:
    """What an attempt measured, and what its probes saw."""
    op.create_table(
        "chunks",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        _attempt_key("chunks"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "sequence", name="pk_chunks"),
    )
    op.create_table(
        "observations",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("probe", sa.Text(), nullable=False),
        sa.Column("blocks", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", "probe", name="pk_observations"),
        _attempt_key("observations"),
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
        sa.Column("val_loss", sa.Double(), nullable=True),
        _attempt_key("checkpoints"),
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
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name="fk_outbox_experiment_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_outbox_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    )


def _make_leaders() -> None:
    op.create_table(
        "leaders",
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("role", name="pk_leaders"),
    )


def _make_keys() -> None:
    """With the sessions that were opened with them, and the audit log."""
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("scope", _words("ck_keys_scope", SCOPES), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("runs_at_once", sa.Integer(), nullable=True),
        sa.Column("device_hours_a_day", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_sessions_key_id"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_sessions"),
    )
    op.create_table(
        "audit",
        sa.Column("number", BIG_SERIAL, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    _index("ix_audit_at", "audit", ["at"])


def _make_webhooks() -> None:
    """With the ends that they still have to be told of, and the messages that tell them."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        sa.UniqueConstraint("idempotency_key", name="uq_webhooks_idempotency_key"),
    )
    op.create_table(
        "webhook_endings",
        sa.Column("id", BIG_SERIAL, nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endings"),
    )
    op.create_table(
        "webhook_messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("kind", _words("ck_webhook_messages_kind", MESSAGE_KINDS), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", _words("ck_webhook_messages_state", DELIVERY_STATES), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("settled_at", sa.Double(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(state = 'waiting') = (settled_at is null)", name="ck_webhook_messages_settled_has_a_moment"
        ),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name="fk_webhook_messages_webhook_id"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_messages"),
    )
    _index("ix_webhook_messages_webhook_id", "webhook_messages", ["webhook_id", "created_at"])
    _index("ix_webhook_messages_waiting", "webhook_messages", ["available_at"], "state = 'waiting'")


def _make_change_counters() -> None:
    """Several, of which a writer picks one: see `tables.py`."""
    op.create_table(
        "change_counters",
        sa.Column("shard", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("shard", name="pk_change_counters"),
    )
    counters = sa.table("change_counters", sa.column("shard"), sa.column("value"))
    op.bulk_insert(counters, [{"shard": shard, "value": 0} for shard in range(16)])
