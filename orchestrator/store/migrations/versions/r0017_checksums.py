"""0017: rows that hold more than columns say have a checksum; attempts have a note.

The rows that are there get theirs now: they are taken for what was written.
"""

import zlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

CONTENT = {
    "run_specs": (("run_id",), "spec"),
    "results": (("run_id",), "result"),
    "chunks": (("run_id", "attempt", "sequence"), "data"),
    "observations": (("run_id", "attempt", "step", "probe"), "blocks"),
}
"""Table → its key, and the column that the checksum is of."""
ROWS_AT_ONCE = 200
"""In memory, some 100 kB each at most."""


def upgrade() -> None:
    """Add the columns and count the checksums of what is there."""
    op.add_column("attempts", sa.Column("note", sa.Text(), nullable=True))
    for table, (key, content) in CONTENT.items():
        op.add_column(table, sa.Column("checksum", sa.BigInteger(), nullable=True))
        _fill(table, key, content)


def downgrade() -> None:
    """Forget them."""
    for table in CONTENT:
        op.drop_column(table, "checksum")
    op.drop_column("attempts", "note")


def _fill(table: str, key: tuple[str, ...], content: str) -> None:
    named = sa.table(table, *(sa.column(name) for name in (*key, content, "checksum")))
    update = sa.update(named).where(*(named.c[name] == sa.bindparam(f"of_{name}") for name in key))
    for rows in _pages(named, key, content):
        binds = [{f"of_{name}": row[name] for name in key} | {"new": _checksum(row[content])} for row in rows]
        op.get_bind().execute(update.values(checksum=sa.bindparam("new")), binds)


def _pages(named: sa.TableClause, key: tuple[str, ...], content: str) -> Iterator[list[sa.RowMapping]]:
    """All rows, page by page behind the last key: a cursor would not outlive the writes between."""
    columns = [named.c[name] for name in key]
    # As bytes: text that is no UTF-8 would end the migration, and is found by its reader.
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    raw = sa.cast(named.c[content], sa.LargeBinary).label(content) if is_sqlite else named.c[content]
    query = sa.select(*columns, raw).order_by(*columns).limit(ROWS_AT_ONCE)
    rows = list(op.get_bind().execute(query).mappings())
    while rows:
        yield rows
        last = sa.tuple_(*columns) > sa.tuple_(*(sa.literal(rows[-1][name]) for name in key))
        rows = list(op.get_bind().execute(query.where(last)).mappings())


def _checksum(content: str | bytes | None) -> int | None:
    """CRC-32; what is not there has none."""
    return None if content is None else zlib.crc32(content.encode() if isinstance(content, str) else content)
