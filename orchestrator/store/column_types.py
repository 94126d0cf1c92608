"""Types of columns whose content is more than SQL knows: JSON, and words of an enum. A damaged one fails no query.

What is in them is read row by row by `integrity.py`; `admin/maintenance.py` finds these columns by their types.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class _Raw(FunctionElement[Any]):
    """A column of text as it lies there."""

    type = sa.types.NullType()
    inherit_cache = True


@compiles(_Raw, "sqlite")
def _sqlite_raw(element: _Raw, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS BLOB)"


@compiles(_Raw, "postgresql")
def _postgresql_raw(element: _Raw, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


class JsonText(sa.TypeDecorator[str]):
    """A column of JSON. SQLite's driver decodes text, and a query would fail as a whole where one row's is no UTF-8:
    such a value is bytes, which `integrity.py` refuses."""

    impl = sa.Text
    cache_ok = True

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """As it lies there."""
        return sa.type_coerce(_Raw(column), self)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Text where it is some."""
        try:
            return value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            return value


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
        """The word, or what stands for one that cannot be read."""
        words = {member.value: member for member in self.kind}
        return lambda value: None if value is None else words.get(value, self.unreadable)
