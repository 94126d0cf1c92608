"""A record as notebooks show it: its fields as a table, and below it a table for each list of records in it."""

from collections.abc import Iterable, Sequence
from enum import Enum
from html import escape
from typing import Any

from pydantic import BaseModel

MOST_ROWS = 50
"""The most rows of a list of records; left out ones are counted."""
LONGEST_TEXT = 1_000
"""The longest text of one value."""


def record_html(record: BaseModel) -> str:
    """Return the record; fields of records within it are called `record.field`."""
    fields = dict(_fields(record))
    lists = {name: value for name, value in fields.items() if _is_list_of_records(value)}
    rows = [(name, _text(value)) for name, value in fields.items() if name not in lists]
    return _html_table(("", type(record).__name__), rows) + "".join(
        _list_html(*named_list) for named_list in lists.items()
    )


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts, which may hold anything."""
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def _list_html(name: str, records: Sequence[BaseModel]) -> str:
    rows = [{field: _text(value) for field, value in _fields(record)} for record in records[:MOST_ROWS]]
    heads = list(dict.fromkeys(field for row in rows for field, text in row.items() if text))
    left_out = f", the first {MOST_ROWS}" if len(records) > MOST_ROWS else ""
    table = _html_table(heads, [[row.get(head, "") for head in heads] for row in rows])
    return f"<p>{escape(name)}: {len(records)}{left_out}</p>{table}"


def _fields(record: BaseModel, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in record:
        if isinstance(value, BaseModel):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_list_of_records(value: object) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(isinstance(member, BaseModel) for member in value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list) and not any(isinstance(member, BaseModel) for member in value):
        return ", ".join(map(_text, value))[:LONGEST_TEXT]
    return str(value)[:LONGEST_TEXT]
