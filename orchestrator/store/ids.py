"""Ids: how one is drawn, how the database is asked for one from outside, and what to say where that is none.

People type the beginning of an id: the ids that begin with it are named. The command line goes on by itself where only
one does (`api/client/client.py`).
"""

import re
import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import NotFoundError
from orchestrator.store.tables import experiments, external_experiments, is_deleted, runs

ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: no letter that looks like a digit."""
ID_LENGTH = 10
"""50 random bits: a million experiments meet by chance with a probability below 0.05 %, and the key refuses them."""
ABBREVIATED: Final = re.compile(r"([0-9a-z]{1,32})(?:-(\d{1,9}))?")
"""The beginning of an experiment's id; behind it, of a run, its number, with or without zeros. Nothing else is looked
for: a lookup reads all ids."""
IDS_AT_ONCE = 500
"""The ids in one statement: SQLite takes 32,766 parameters, PostgreSQL 65,535."""
MOST_NEAR = 5


def new_id() -> str:
    """Return a random id. Drawn at once: a draw for each letter costs ten calls of the kernel."""
    bits = secrets.randbits(5 * ID_LENGTH)
    return "".join(ID_ALPHABET[bits >> shift & 31] for shift in range(0, 5 * ID_LENGTH, 5))


def id_slices(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the ids in pieces for one statement each."""
    remaining_ids = iter(ids)
    while id_slice := list(islice(remaining_ids, IDS_AT_ONCE)):
        yield id_slice


def validate_id(text: str) -> str:
    """Return an id from outside that is safe in a query: PostgreSQL refuses NUL, and none of our ids has one."""
    return text.replace("\x00", "\ufffd")


def experiment_not_found(connection: Connection, experiment_id: str, *, deleted_too: bool = False) -> NotFoundError:
    """Return the error that the experiment does not exist, with the ids that may have been meant."""
    ids = sa.select(experiments.c.id)
    return _not_found("experiment", experiment_id, ids if deleted_too else ids.where(~is_deleted), connection)


def run_not_found(connection: Connection, run_id: str) -> NotFoundError:
    """Return the error that the run does not exist, with the ids that may have been meant."""
    ids = sa.select(runs.c.id).join(experiments, runs.c.experiment_number == experiments.c.number)
    ids = ids.where(~is_deleted)
    return _not_found("run", run_id, ids, connection)


def external_experiment_not_found(connection: Connection, experiment_id: str) -> NotFoundError:
    """Return the error that the experiment of external runs does not exist, with the ids that may have been meant."""
    ids = sa.select(external_experiments.c.id)
    return _not_found("experiment of external runs", experiment_id, ids, connection, external_experiments)


def _not_found(
    noun: str, text: str, ids: sa.Select[Any], connection: Connection, table: sa.Table = experiments
) -> NotFoundError:
    message = f"there is no {noun} {text!r}"
    matched = ABBREVIATED.fullmatch(text)
    if matched is None or (matched[2] is not None and noun != "run"):
        return NotFoundError(message)
    begins = ids.where(table.c.id.startswith(matched[1]))
    if noun == "run":
        begins = begins.where(runs.c.position == int(matched[2])) if matched[2] else begins.where(sa.false())
    suggestions = tuple(connection.execute(begins.order_by(ids.selected_columns[0]).limit(MOST_NEAR + 1)).scalars())
    if len(suggestions) > 1:
        listing = ", ".join(suggestions[:MOST_NEAR]) + (" and more" if len(suggestions) > MOST_NEAR else "")
        return NotFoundError(f"{message}; several begin with it: {listing}", asked=text, near=suggestions)
    if not suggestions:
        return NotFoundError(message)
    return NotFoundError(f"{message}; did you mean {suggestions[0]}?", asked=text, near=suggestions)
