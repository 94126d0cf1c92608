"""Types of columns whose content is more than SQL knows: JSON, labels, words of an enum. A damaged one fails no query.

What is in them is read row by row by `integrity.py`; `admin/maintenance.py` finds these columns by their types.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect


class JsonText(sa.TypeDecorator[str]):
    """A column of JSON."""

    impl = sa.Text
    cache_ok = True


class Labels(sa.TypeDecorator[tuple[str, ...]]):
    """A text column of labels, which have no comma: `,paper,tiny,`."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str:
        """Return the text of the labels."""
        return "".join(f"{label}," for label in ("", *value)) if value else ""

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        """Return the labels in a text."""
        return tuple(filter(None, (value or "").split(",")))


class Words(sa.TypeDecorator[Any]):
    """A text column that holds one of the enum's values, checked by the database where the column was there first:
    SQLite adds no constraint to a table that is there. What is none of them is read as `unreadable`."""

    impl = sa.Enum
    cache_ok = True

    def __init__(self, kind: type[StrEnum], name: str, unreadable: StrEnum | None, *, checked: bool = True) -> None:
        self.kind, self.unreadable = kind, unreadable
        super().__init__(
            kind,
            name=name,
            native_enum=False,
            create_constraint=checked,
            length=24,
            values_callable=lambda members: [member.value for member in members],
        )

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return the word, or what stands for one that cannot be read."""
        members_by_word = {member.value: member for member in self.kind}
        return lambda value: None if value is None else members_by_word.get(value, self.unreadable)
