"""The tables. What SQL can hold as a constraint, it holds: states, one result a run, one live lease a run, gap keys.

    experiments ─< runs ─< attempts ─< chunks, observations, samples, checkpoints
                    ├── run_specs, results        (one row per run; apart, so that the hot row of `runs` stays narrow)
                    └─< events                    (one row a change of state)
    outbox                                        (changes that MLflow and webhooks have not heard of yet)
    change_counters                               (how often anything visible has changed)
    leaders                                       (who dispatches, who exports, and until when)
    keys ─< sessions, audit                       (who may call, and what they changed)
    removed                                       (the sums over what deletion has removed)
    webhooks ─< webhook_messages                  (receivers of ended experiments, and their messages)
    external_experiments ─< external_runs ─< external_chunks    (what others' loops told; none of it is ever queued)

All times are seconds since 1970 on the database's clock. A new database has exactly this schema; `migrations/`
brings an older one here, and a test compares.
"""

from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKey, ForeignKeyConstraint, Index, Table

from orchestrator.jobs import CLAIMABLE, AttemptOutcome, RunStatus, TimeLimit
from orchestrator.keys import Scope
from orchestrator.store.column_types import JsonText, Labels, Words
from orchestrator.webhooks.records import DeliveryState, MessageKind

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

BigSerial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A counting key: only an INTEGER key counts by itself on SQLite, where it has 64 bits anyway."""


class OutboxKind(StrEnum):
    """A change that other systems have to hear of."""

    EXPERIMENT_SUBMITTED = "experiment_submitted"
    RUN_ENDED = "run_ended"
    EXPERIMENT_ENDED = "experiment_ended"
    """The experiment may have ended: for webhooks, and written only where there is one."""


experiments = Table(
    "experiments",
    metadata,
    Column("number", BigSerial, primary_key=True),  # the order of submission, without ties
    Column("id", sa.Text, nullable=False, unique=True),
    Column("name", sa.Text, nullable=False),
    Column("kind", sa.Text, nullable=False),
    Column("spec", JsonText, nullable=False),  # canonical JSON
    Column("spec_hash", sa.Text, nullable=False),
    Column("idempotency_key", sa.Text, nullable=True, unique=True),
    Column("created_at", sa.Double, nullable=False),
    # Whether `queue/growth.py` may add runs, and how many transactions ended some; negative once that was followed.
    Column("growing", sa.Boolean, nullable=False, server_default=sa.false()),
    Column("news", sa.BigInteger, nullable=False, server_default="0"),
    Column("paused", sa.Boolean, nullable=False, server_default=sa.false()),  # whether those wait for a resume
    Column("key_id", sa.Text, nullable=True),  # whose key submitted it; keys are never deleted
    # What people do with it after its submission; see `annotations.py` and `orchestrator/store/admin/deletion.py`.
    Column("labels", Labels, nullable=False, server_default=""),
    Column("note", sa.Text, nullable=True),
    Column("noted_at", sa.Double, nullable=True),
    Column("noted_by", sa.Text, nullable=True),
    Column("revision", sa.BigInteger, nullable=False, server_default="0"),  # grows with each change of these
    Column("cloned_from", sa.Text, nullable=True),  # an id; the experiment may have been removed since
    Column("deleted_at", sa.Double, nullable=True),
    Column("undo_until", sa.Double, nullable=True),  # null of a deleted one: it is being removed
)


def _partial_index(name: str, *columns: Column[Any], where: sa.ColumnElement[bool], unique: bool = False) -> None:
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


is_deleted = experiments.c.deleted_at.is_not(None)
_partial_index("ix_experiments_deleted", experiments.c.deleted_at, where=is_deleted)

removed = Table(
    "removed",
    metadata,
    Column("what", sa.Text, primary_key=True),
    Column("count", sa.BigInteger, nullable=False),
    Column("seconds", sa.Double, nullable=False),
)
"""The counts of runs that were removed: a counter must never fall."""

runs = Table(
    "runs",
    metadata,
    Column("id", sa.Text, primary_key=True),
    Column("experiment_id", sa.Text, ForeignKey("experiments.id"), nullable=False),
    Column("experiment_number", sa.BigInteger, nullable=False),
    Column("position", sa.Integer, nullable=False),
    Column("candidate", sa.Text, nullable=False),
    Column("optimizer", sa.Text, nullable=False),
    Column("lr", sa.Double, nullable=False),
    Column("seed", sa.BigInteger, nullable=False),
    Column("model", sa.Text, nullable=False),
    Column("cpus", sa.Integer, nullable=False),
    Column("gpus", sa.Integer, nullable=False),
    Column("processes", sa.Integer, nullable=False, server_default="1"),  # each holds a device
    Column("steps_total", sa.BigInteger, nullable=False),
    Column("created_at", sa.Double, nullable=False),
    # The order of the queue: rank, turn, experiment, position; see `queue/submission.py`.
    Column("rank", sa.Integer, nullable=False, server_default="0"),  # minus the priority
    Column("turn", sa.BigInteger, nullable=False, server_default="0"),
    # The queue's part: only `queue/transitions.py` writes these.
    Column("status", Words(RunStatus, "status", RunStatus.FAILED), nullable=False),
    Column("reason", sa.Text, nullable=True),
    Column("attempt", sa.Integer, nullable=False, server_default="0"),
    Column("failures", sa.Integer, nullable=False, server_default="0"),
    Column("available_at", sa.Double, nullable=False),  # not before this moment may it be claimed
    Column("schedulable", sa.Boolean, nullable=False, server_default=sa.true()),
    Column("stop_requested_at", sa.Double, nullable=True),
    Column("stop_early", sa.Boolean, nullable=True),  # what its sweep has decided; null if no sweep may
    Column("started_at", sa.Double, nullable=True),
    Column("ended_at", sa.Double, nullable=True),
    Column("last_event", sa.Integer, nullable=False),
    # How long it may take; see `orchestrator/store/queue/time_limits.py`.
    Column("max_seconds", sa.Double, nullable=True),
    Column("max_seconds_from", sa.Double, nullable=False, server_default="0"),  # device time that does not count
    Column("deadline_at", sa.Double, nullable=True),
    # What it was stopped for.
    Column("limit_reached", Words(TimeLimit, "limit_reached", None, checked=False), nullable=True),
    Column("micro_batch_sequences", sa.Integer, nullable=True),  # instead of the specification's; `completion.py`
    # Progress, as the newest attempt last told it.
    Column("step", sa.BigInteger, nullable=False, server_default="0"),
    Column("device_seconds", sa.Double, nullable=False, server_default="0"),  # the sum over `attempts`
    Column("last_train_loss", sa.Double, nullable=True),
    Column("last_val_loss", sa.Double, nullable=True),
    Column("tokens_per_second", sa.Double, nullable=True),
    Column("version", sa.BigInteger, nullable=False, server_default="0"),
    CheckConstraint(
        "(status in ('succeeded', 'failed', 'cancelled')) = (ended_at is not null)", name="ended_when_terminal"
    ),
    CheckConstraint(
        "(status in ('cancelling', 'pausing')) = (stop_requested_at is not null)", name="stop_has_a_moment"
    ),
    sa.UniqueConstraint("experiment_number", "position"),
)

is_claimable = runs.c.status.in_(
    sa.bindparam("claimable", sorted(CLAIMABLE), type_=runs.c.status.type, expanding=True, literal_execute=True)
)
"""Whether a run waits in the queue. Written out in the statement, for only then does SQLite use the index below."""

is_kept = runs.c.experiment_number.not_in(sa.select(experiments.c.number).where(is_deleted))
"""Whether a run's experiment is not deleted. Few are, and an index of their own finds them."""

QUEUE_ORDER = (runs.c.rank, runs.c.turn, runs.c.experiment_number, runs.c.position)
"""The order of the queue: the most urgent, among them the one whose turn is first."""

_partial_index("ix_runs_queue", *QUEUE_ORDER, where=runs.c.status.in_(sorted(CLAIMABLE)))
_partial_index("ix_runs_stopping", runs.c.stop_requested_at, where=runs.c.stop_requested_at.is_not(None))
_has_deadline = runs.c.deadline_at.is_not(None) & runs.c.ended_at.is_(None)
_partial_index("ix_runs_deadline", runs.c.deadline_at, where=_has_deadline)

run_specs = Table(
    "run_specs",
    metadata,
    Column("run_id", sa.Text, ForeignKey("runs.id"), primary_key=True),
    Column("spec", JsonText, nullable=False),  # canonical JSON
    Column("checksum", sa.BigInteger, nullable=True),  # of the column before; `integrity.py`
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", sa.Text, ForeignKey("runs.id"), primary_key=True),
    Column("attempt", sa.Integer, primary_key=True),
    Column("token_hash", sa.Text, nullable=False),  # SHA-256 of the lease's secret, which is kept nowhere
    Column("expires_at", sa.Double, nullable=False),
    Column("leased_at", sa.Double, nullable=False),
    Column("started_at", sa.Double, nullable=True),
    Column("heartbeat_at", sa.Double, nullable=True),
    Column("ended_at", sa.Double, nullable=True),
    Column("outcome", Words(AttemptOutcome, "outcome", AttemptOutcome.BROKEN), nullable=True),
    Column("message", sa.Text, nullable=True),
    Column("step", sa.BigInteger, nullable=False, server_default="0"),
    Column("device_seconds", sa.Double, nullable=False, server_default="0"),
    Column("last_batch", sa.BigInteger, nullable=False, server_default="-1"),
    Column("node", sa.Text, nullable=True),  # of the cluster, as the dispatcher placed it
    Column("key_id", sa.Text, nullable=True),  # whom it is charged to: the experiment's key
    Column("note", sa.Text, nullable=True),  # what its worker told of it beside its outcome
    CheckConstraint("attempt >= 1", name="counts_from_one"),
    CheckConstraint("(outcome is null) = (ended_at is null)", name="ends_with_an_outcome"),
)

_is_live = attempts.c.ended_at.is_(None)
_partial_index("uq_attempts_live", attempts.c.run_id, where=_is_live, unique=True)
_partial_index("ix_attempts_expiry", attempts.c.expires_at, where=_is_live)
_partial_index("ix_attempts_charged", attempts.c.key_id, attempts.c.ended_at, where=attempts.c.key_id.is_not(None))

results = Table(
    "results",
    metadata,
    Column("run_id", sa.Text, primary_key=True),
    Column("attempt", sa.Integer, nullable=False),
    Column("recorded_at", sa.Double, nullable=False),
    Column("verdict", sa.Text, nullable=False),
    Column("final_val_loss", sa.Double, nullable=True),
    Column("result", JsonText, nullable=False),  # JSON
    Column("checksum", sa.BigInteger, nullable=True),
    ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"]),
)

events = Table(
    "events",
    metadata,
    Column("run_id", sa.Text, ForeignKey("runs.id"), primary_key=True),
    Column("sequence", sa.Integer, primary_key=True),
    Column("at", sa.Double, nullable=False),
    Column("from_status", Words(RunStatus, "from_status", None), nullable=True),
    Column("to_status", Words(RunStatus, "to_status", RunStatus.FAILED), nullable=False),
    Column("attempt", sa.Integer, nullable=False),
    Column("reason", sa.Text, nullable=True),
    CheckConstraint("(sequence = 1) = (from_status is null)", name="begins_with_submit"),
)


def _attempt_table(name: str, *columns: Column[Any]) -> Table:
    """Return a table of attempts' many rows: keyed by the attempt and by those of the columns that are primary keys."""
    return Table(
        name,
        metadata,
        Column("run_id", sa.Text, primary_key=True),
        Column("attempt", sa.Integer, primary_key=True),
        *columns,
        ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"]),
    )


chunks = _attempt_table(
    "chunks",
    Column("sequence", sa.BigInteger, primary_key=True),  # of the first batch in it
    Column("points", sa.Integer, nullable=False),
    Column("last_step", sa.BigInteger, nullable=False),
    Column("data", sa.LargeBinary, nullable=False),
    Column("checksum", sa.BigInteger, nullable=True),
)

observations = _attempt_table(
    "observations",
    Column("step", sa.BigInteger, primary_key=True),
    Column("probe", sa.Text, primary_key=True),
    Column("blocks", sa.LargeBinary, nullable=False),  # JSON, compressed
    Column("checksum", sa.BigInteger, nullable=True),
)

samples = _attempt_table(
    "samples",
    Column("step", sa.BigInteger, primary_key=True),
    Column("texts", sa.LargeBinary, nullable=False),  # JSON, compressed
    Column("checksum", sa.BigInteger, nullable=True),
)

checkpoints = _attempt_table(
    "checkpoints",
    Column("step", sa.BigInteger, primary_key=True),
    Column("path", sa.Text, nullable=False),
    Column("size_bytes", sa.BigInteger, nullable=False),
    Column("sha256", sa.Text, nullable=False),
    Column("recorded_at", sa.Double, nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigSerial, primary_key=True),
    Column("kind", Words(OutboxKind, "kind", OutboxKind.RUN_ENDED), nullable=False),
    Column("experiment_id", sa.Text, ForeignKey("experiments.id"), nullable=False),
    Column("run_id", sa.Text, ForeignKey("runs.id"), nullable=True),
    Column("created_at", sa.Double, nullable=False),
    Column("available_at", sa.Double, nullable=False),  # not before this moment is it tried again
    Column("tries", sa.Integer, nullable=False, server_default="0"),
    Column("last_error", sa.Text, nullable=True),
)
"""A delivered entry is deleted."""

CHANGE_COUNTERS = 16
"""Writers of PostgreSQL pick one of so many rows, so that they seldom wait for one another; readers add them up."""

change_counters = Table(
    "change_counters",
    metadata,
    Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    Column("value", sa.BigInteger, nullable=False),
)


@sa.event.listens_for(change_counters, "after_create")
def _insert_change_counters(target: Table, connection: sa.Connection, **_options: Any) -> None:
    connection.execute(sa.insert(target), [{"shard": shard, "value": 0} for shard in range(CHANGE_COUNTERS)])


leaders = Table(
    "leaders",
    metadata,
    Column("role", sa.Text, primary_key=True),
    Column("holder", sa.Text, nullable=False),
    Column("term", sa.BigInteger, nullable=False),  # rises each time that another holder takes over
    Column("expires_at", sa.Double, nullable=False),
    Column("nodes", JsonText),  # JSON: the largest machines that a dispatcher has
)

keys = Table(
    "keys",
    metadata,
    Column("id", sa.Text, primary_key=True),
    Column("label", sa.Text, nullable=False),
    Column("scope", Words(Scope, "scope", Scope.VIEWER), nullable=False),
    Column("secret_hash", sa.Text, nullable=False),  # SHA-256 of the whole key, which is kept nowhere
    Column("created_at", sa.Double, nullable=False),
    Column("expires_at", sa.Double, nullable=True),
    Column("revoked_at", sa.Double, nullable=True),
    Column("last_used_at", sa.Double, nullable=True),
    Column("runs_at_once", sa.Integer, nullable=True),
    Column("device_hours_a_day", sa.Double, nullable=True),
)
"""Never deleted: a service that once had keys stays closed, and old lines of the audit log keep their names."""

sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", sa.Text, primary_key=True),  # SHA-256 of the cookie's value
    Column("key_id", sa.Text, ForeignKey("keys.id"), nullable=False),
    Column("expires_at", sa.Double, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("number", BigSerial, primary_key=True),
    Column("at", sa.Double, nullable=False),
    Column("key_id", sa.Text, nullable=True),
    Column("address", sa.Text, nullable=False),
    Column("action", sa.Text, nullable=False),
    Column("target", sa.Text, nullable=False),
    Column("outcome", sa.Integer, nullable=False),
    Index("ix_audit_at", "at"),
)

external_experiments = Table(
    "external_experiments",
    metadata,
    Column("number", BigSerial, primary_key=True),
    Column("id", sa.Text, nullable=False, unique=True),
    Column("name", sa.Text, nullable=False, unique=True),  # by which runs that are logged without the service name it
    Column("created_at", sa.Double, nullable=False),
    Column("key_id", sa.Text, nullable=True),
    Column("labels", Labels, nullable=False, server_default=""),
)

external_runs = Table(
    "external_runs",
    metadata,
    Column("id", sa.Text, primary_key=True),  # drawn by who logs, or made of the content of what is imported
    Column("experiment_number", BigSerial, ForeignKey("external_experiments.number"), nullable=False),
    Column("candidate", sa.Text, nullable=False),
    Column("lr", sa.Double, nullable=True),
    Column("seed", sa.BigInteger, nullable=True),
    Column("workload", sa.Text, nullable=True),
    Column("config", JsonText, nullable=False),  # JSON
    Column("tags", JsonText, nullable=False),  # JSON
    Column("source", sa.Text, nullable=False),
    Column("state", sa.Text, nullable=False),
    Column("state_at", sa.Double, nullable=False),  # on the clock of who told it; the newest word counts
    Column("started_at", sa.Double, nullable=False),
    Column("created_at", sa.Double, nullable=False),
    Column("updated_at", sa.Double, nullable=False),
    Column("lines", sa.BigInteger, nullable=False),
    Column("torn_lines", sa.BigInteger, nullable=False),
    Column("metrics", JsonText, nullable=False),  # JSON: first and last value of each
    Index("ix_external_runs_experiment_number", "experiment_number", "created_at"),
)

external_chunks = Table(
    "external_chunks",
    metadata,
    Column("run_id", sa.Text, ForeignKey("external_runs.id"), primary_key=True),
    Column("part", sa.Text, primary_key=True),  # the spool that they are of
    Column("first_line", sa.BigInteger, primary_key=True),
    Column("lines", sa.BigInteger, nullable=False),
    Column("data", sa.LargeBinary, nullable=False),  # JSON lines, compressed
    Column("checksum", sa.BigInteger, nullable=False),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", sa.Text, primary_key=True),
    Column("url", sa.Text, nullable=False),
    Column("experiment_id", sa.Text, nullable=True),  # null tells of all
    Column("key_id", sa.Text, nullable=True),  # who added it
    Column("secret_hash", sa.Text, nullable=False),  # SHA-256 of what signs, which is kept nowhere
    Column("created_at", sa.Double, nullable=False),
)

webhook_messages = Table(
    "webhook_messages",
    metadata,
    Column("id", sa.Text, primary_key=True),  # follows from what it tells: the same end makes no second one
    Column("webhook_id", sa.Text, ForeignKey("webhooks.id"), nullable=False),
    Column("kind", Words(MessageKind, "kind", MessageKind.TEST), nullable=False),
    Column("experiment_id", sa.Text, nullable=True),
    Column("body", JsonText, nullable=False),  # JSON; every try sends the same
    Column("state", Words(DeliveryState, "state", DeliveryState.GIVEN_UP), nullable=False),
    Column("tries", sa.Integer, nullable=False, server_default="0"),
    Column("created_at", sa.Double, nullable=False),
    Column("available_at", sa.Double, nullable=False),  # not before this moment is it tried again
    Column("settled_at", sa.Double, nullable=True),
    Column("last_error", sa.Text, nullable=True),
    CheckConstraint("(state = 'waiting') = (settled_at is null)", name="settled_has_a_moment"),
    Index("ix_webhook_messages_webhook_id", "webhook_id", "created_at"),
)

_is_waiting = webhook_messages.c.state == sa.text("'waiting'")
_partial_index("ix_webhook_messages_waiting", webhook_messages.c.available_at, where=_is_waiting)

# PostgreSQL before 16 can neither ask whether a text is JSON nor whether it is a number that it can hold; a cast of one
# that is not fails the whole query. It has no text with a NUL either.
_JSON_FUNCTION = r"""
CREATE OR REPLACE FUNCTION {name}(document text, path text[]) RETURNS {kind} LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE found json;
BEGIN
    found := replace(document, '\u0000', '\ufffd')::json #> path;
    RETURN CASE WHEN json_typeof(found) IN ({types}) THEN {value} END;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    RETURN NULL;
END $$
"""
"""The function by which `run_table.py` reads documents."""


@sa.event.listens_for(metadata, "after_create")
def _make_json_functions(_target: sa.MetaData, connection: sa.Connection, **_options: Any) -> None:
    if connection.dialect.name == "postgresql":
        text = {"kind": "text", "types": "'string', 'boolean'", "value": "found #>> '{}'"}
        number = {"kind": "double precision", "types": "'number'", "value": "found::text::double precision"}
        connection.exec_driver_sql(_JSON_FUNCTION.format(name="json_text_at", **text))
        connection.exec_driver_sql(_JSON_FUNCTION.format(name="json_number_at", **number))
