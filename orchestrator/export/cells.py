"""The cells of a table, and the formats of tables."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins so for a formula (OWASP: CSV injection)."""


class Format(StrEnum):
    """The format of a written table."""

    PARQUET = "parquet"
    CSV = "csv"


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return `result.peak_memory.host_rss_bytes` → 5: nested records as flat columns; lists and options as JSON
    text."""
    if isinstance(value, dict) and value and not prefix.endswith("options"):
        for key, inner in value.items():
            yield from leaves(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, dict | list):
        yield prefix, json.dumps(value)
    else:
        yield prefix, value


def spreadsheet_safe(value: Any) -> Any:
    """Return a text that a spreadsheet would execute with an apostrophe before it; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
