"""0026: no campaigns. What their ledgers had is written into the notes of their experiments, which are all shown."""

import json
import logging

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

TABLES = ("campaign_entries", "campaign_experiments", "campaigns")
log = logging.getLogger("alembic.runtime.migration")


def upgrade() -> None:
    """Write the notes, end the growth of unfinished tries, drop the tables."""
    connection = op.get_bind()
    if not {*TABLES} <= {*sa.inspect(connection).get_table_names()}:
        return
    old = sa.MetaData()
    old.reflect(connection, only=[*TABLES, "experiments"])
    entries, tries, campaigns = (old.tables[name] for name in TABLES)
    experiments = old.tables["experiments"]
    for campaign in connection.execute(sa.select(campaigns)).all():
        query = sa.select(entries.c.body).where(entries.c.campaign_number == campaign.number).order_by(entries.c.number)
        ledger: dict[int | None, list[str]] = {}
        for body in connection.scalars(query):
            ledger.setdefault(json.loads(body).get("place"), []).append(body)
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
        for place in ledger.keys() - {row.place for row in submitted} - {None}:
            log.warning("campaign %s, a try that was never submitted: %s", campaign.id, ledger[place])
    for name in TABLES:
        op.drop_table(name)
