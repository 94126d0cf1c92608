"""The largest machines of the cluster: told by the dispatcher beside its lease, read by whoever checks a request."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.activity import DISPATCHER
from orchestrator.errors import DamagedError
from orchestrator.store import integrity
from orchestrator.store.database import Database
from orchestrator.store.queue.capacity import Node
from orchestrator.store.tables import leaders


def write_largest_nodes(database: Database, sizes: Sequence[Node]) -> None:
    """Keep the largest nodes for other processes; writes nothing if they are known, and where nobody leads."""
    nodes_json, leads = json.dumps([asdict(node) for node in sizes]), leaders.c.role == DISPATCHER
    query = sa.select(leaders.c.role).where(leads, leaders.c.nodes.is_distinct_from(nodes_json))
    with database.reading() as connection:
        if connection.execute(query).first() is None:
            return
    with database.writing(durable=False) as connection:
        connection.execute(sa.update(leaders).where(leads).values(nodes=nodes_json))


def read_largest_nodes(database: Database, connection: Connection) -> tuple[Node, ...]:
    """Return the largest nodes, as the dispatcher has seen them; none while nobody dispatches."""
    leads = (leaders.c.role == DISPATCHER) & (leaders.c.expires_at > database.read_clock(connection))
    nodes_json = connection.execute(sa.select(leaders.c.nodes).where(leads)).scalar_one_or_none()
    with suppress(DamagedError):  # the dispatcher tells them again
        return tuple(integrity.stored(tuple[Node, ...], nodes_json or "[]"))
    return ()
