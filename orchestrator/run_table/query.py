"""The query of the table of all runs: columns, filter, order and page, parsed and checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.run_table.fields import DEFAULT_COLUMNS, FilterError, RunField, find_field
from orchestrator.run_table.filters import Filter, parse_filter

MOST_COLUMNS = 30
MOST_ROWS = 1_000
LONGEST_CURSOR = 80


@dataclass(frozen=True, kw_only=True)
class TableQuery:
    """The query of the table, checked."""

    columns: tuple[RunField, ...]
    where: Filter | None = None
    sort: RunField = field(default_factory=lambda: find_field("created_at"))
    descending: bool = True
    limit: int = 100
    after: str | None = None
    """The cursor of the last run of the page before."""


def read_query(
    *, columns: Sequence[str] = (), where: str = "", sort: str = "", limit: int = 100, after: str = ""
) -> TableQuery:
    """Return the query of these texts; `sort` is a field, with `-` before it the largest first. Raises
    `FilterError`."""
    names = tuple(dict.fromkeys(columns)) or DEFAULT_COLUMNS
    if len(names) > MOST_COLUMNS:
        raise FilterError(f"{len(names)} columns; at most {MOST_COLUMNS} are shown at once")
    if len(after) > LONGEST_CURSOR or "\x00" in after:
        raise FilterError("no page begins there; go back to the first page")
    order = sort or "-created_at"
    return TableQuery(
        columns=tuple(find_field(name) for name in names),
        where=parse_filter(where),
        sort=find_field(order.removeprefix("-")),
        descending=order.startswith("-"),
        limit=min(max(limit, 1), MOST_ROWS),
        after=after or None,
    )
