"""r0001: the first schema of this history, from 0025, the last one of the history before it."""

import json
import logging

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None

CAMPAIGN_TABLES = ("campaign_entries", "campaign_experiments", "campaigns")
OUTBOX_KINDS = ("experiment_submitted", "run_ended", "experiment_ended")
log = logging.getLogger("alembic.runtime.migration")


def upgrade() -> None:
    """Write what campaigns had into notes and saved views into the log, move the ends that webhooks hear of to the
    outbox, and drop traces, losses of checkpoints and idempotency keys of webhooks."""
    _add_news()
    _drop_campaigns()
    _move_endings()
    _drop_saved_views()
    for table in ("experiments", "runs"):
        op.drop_column(table, "trace_parent")
    op.drop_column("checkpoints", "val_loss")
    with op.batch_alter_table("webhooks") as webhooks:
        webhooks.drop_constraint("uq_webhooks_idempotency_key", type_="unique")
        webhooks.drop_column("idempotency_key")


def _add_news() -> None:
    """Add the one column that 0025 has and 0024 lacks; experiments that still grow are looked at once."""
    if any(column["name"] == "news" for column in sa.inspect(op.get_bind()).get_columns("experiments")):
        return
    op.add_column("experiments", sa.Column("news", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE experiments SET news = 1 WHERE growing AND kind <> 'sweep'")


def _drop_campaigns() -> None:
    """Write each ledger into the notes of its experiments, end the growth of unfinished tries, drop the tables."""
    connection = op.get_bind()
    old = sa.MetaData()
    old.reflect(connection, only=[*CAMPAIGN_TABLES, "experiments"])
    entries, tries, campaigns = (old.tables[name] for name in CAMPAIGN_TABLES)
    experiments = old.tables["experiments"]
    for campaign in connection.execute(sa.select(campaigns)).all():
        query = sa.select(entries.c.body).where(entries.c.campaign_number == campaign.number).order_by(entries.c.number)
        ledger: dict[int | None, list[str]] = {}
        for body in connection.scalars(query):
            ledger.setdefault(_try_number(body), []).append(body)
        joined = tries.join(experiments, experiments.c.number == tries.c.experiment_number)
        query = sa.select(tries.c.place, tries.c.workload, experiments.c.number, experiments.c.note).select_from(joined)
        query = query.where(tries.c.campaign_number == campaign.number).order_by(tries.c.place, tries.c.workload)
        submitted = connection.execute(query).all()
        for row in submitted:
            held_out = f" on held-out workload {row.workload}" if row.workload else ""
            title = f"Try {row.place}{held_out} of campaign {campaign.name} ({campaign.id}):"
            lines = "\n".join(f"    {text}" for text in (campaign.spec, *ledger.get(row.place, ())))
            values = {
                "note": "\n\n".join(filter(None, (row.note, title, lines))),
                "noted_at": sa.func.coalesce(experiments.c.noted_at, experiments.c.created_at),
                "growing": False,
                "news": -sa.func.abs(experiments.c.news),
            }
            connection.execute(sa.update(experiments).where(experiments.c.number == row.number).values(values))
        for try_number in ledger.keys() - {row.place for row in submitted}:
            log.warning(
                "campaign %s (%s), entries without an experiment: %s", campaign.id, campaign.spec, ledger[try_number]
            )
    for name in CAMPAIGN_TABLES:
        op.drop_table(name)


def _try_number(body: str) -> int | None:
    """Return the try that an entry is about; None for those of the whole campaign, and for one that is damaged."""
    try:
        number = json.loads(body)["place"]
    except (ValueError, TypeError, KeyError):
        return None
    return number if isinstance(number, int) else None


def _move_endings() -> None:
    """Let the outbox have that kind of entry, and move the entries there."""
    with op.batch_alter_table("outbox", recreate="auto") as outbox:
        if op.get_bind().dialect.name != "sqlite":  # which makes the table anew, without it
            outbox.drop_constraint("ck_outbox_kind", type_="check")
        outbox.create_check_constraint("ck_outbox_kind", sa.column("kind").in_(OUTBOX_KINDS))
    op.execute(
        "INSERT INTO outbox (kind, experiment_id, created_at, available_at) "
        "SELECT 'experiment_ended', experiment_id, created_at, created_at FROM webhook_endings "
        "WHERE experiment_id IN (SELECT id FROM experiments) ORDER BY id"
    )
    op.drop_table("webhook_endings")


def _drop_saved_views() -> None:
    """Name each view's address, which a bookmark keeps as well, and drop the table."""
    for name, address in op.get_bind().execute(sa.text("SELECT name, address FROM saved_views ORDER BY name")):
        log.warning("the saved view %r was %s", name, address)
    op.drop_table("saved_views")
