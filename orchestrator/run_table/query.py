"""The query of the table of all runs: columns, filter, order, groups and page, parsed and checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.run_table.fields import (
    DEFAULT_COLUMNS,
    FieldKind,
    FilterError,
    RunField,
    RunGroup,
    Value,
    find_field,
)
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
    group: tuple[RunField, ...] = ()
    limit: int = 100
    after: str | None = None
    """The cursor of the last run of the page before."""


def read_query(
    *, columns: Sequence[str] = (), where: str = "", sort: str = "", group: str = "", limit: int = 100, after: str = ""
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
        group=tuple(find_field(name) for name in dict.fromkeys(group.split())),
        limit=min(max(limit, 1), MOST_ROWS),
        after=after or None,
    )


def group_filter(fields: Sequence[RunField], group: RunGroup) -> str:
    """Return the filter that finds the runs of a group."""
    conditions = [_value_filter(field, value) for field, value in zip(fields, group.values, strict=True)]
    return " and ".join([*conditions, f"origin = {group.origin}"])


def _value_filter(field: RunField, value: Value) -> str:
    if value is None:
        return f'"{field.name}" = null'
    if field.kind is FieldKind.TEXT or isinstance(value, str):
        quoted = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{field.name}" = "{quoted}"'
    if field.kind is FieldKind.JSON:  # `=` would find texts of these digits, too
        return f'"{field.name}" >= {value!r} and "{field.name}" <= {value!r}'
    return f'"{field.name}" = {value!r}'
