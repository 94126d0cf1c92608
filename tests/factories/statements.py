"""The load on the database: the parameters of a statement, the rows of a transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa


@dataclass
class Work:
    """The statements so far."""

    parameters: list[int] = field(default_factory=list)
    """The parameters of each statement, or of its longest one if it ran for many rows."""
    changed_rows: list[int] = field(default_factory=lambda: [0])
    """Inserted, updated or deleted, of each transaction."""


@contextmanager
def counted_work() -> Iterator[Work]:
    """Yield the statements of every database within the block."""
    work = Work()

    def count_parameters(_c: Any, _cursor: Any, _statement: str, parameters: Any, _context: Any, is_many: bool) -> None:
        work.parameters.append(max(map(len, parameters), default=0) if is_many else len(parameters))

    def count_rows(_c: Any, cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.lstrip().upper().startswith("SELECT"):
            work.changed_rows[-1] += max(cursor.rowcount, 0)

    def end(_connection: Any) -> None:
        work.changed_rows.append(0)

    listeners: dict[str, Callable[..., Any]] = {
        "before_cursor_execute": count_parameters,
        "after_cursor_execute": count_rows,
        "commit": end,
    }
    for name, listener in listeners.items():
        sa.event.listen(sa.Engine, name, listener)
    try:
        yield work
    finally:
        for name, listener in listeners.items():
            sa.event.remove(sa.Engine, name, listener)
