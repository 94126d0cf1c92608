"""`SavedViews`: views of pages under a name. The whole view is its address; a name makes it findable for everybody."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from orchestrator.errors import ConflictError, DamagedError, NotFoundError
from orchestrator.names import plain_name
from orchestrator.records import LONGEST_ADDRESS, LONGEST_VIEW_NAME, SavedView
from orchestrator.store.database import Database
from orchestrator.store.ids import new_id, validate_id
from orchestrator.store.tables import keys, saved_views

MOST_VIEWS = 1_000
ADDRESS = re.compile(r"/(runs|compare|(experiments|external)/[A-Za-z0-9_-]{1,64})?(\?[!-~]*)?")
"""Pages whose view stands in their address; nothing that leads elsewhere."""


def read_address(address: str) -> str:
    """A stored address, to which browsers are sent. Raises `DamagedError` for one that nobody could have saved."""
    if len(address) > LONGEST_ADDRESS or not ADDRESS.fullmatch(address):
        raise DamagedError("is that of no page with a view")
    return address


class ViewError(ConflictError):
    """A view cannot be saved."""


class SavedViews:
    """Those of one database. Thread-safe; every method may raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, name: str, address: str, *, by: str | None) -> SavedView:
        """Keep it under that name, in place of an earlier one of the same key. Raises `ViewError`."""
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_VIEW_NAME or not name.isprintable():
            raise ViewError(f"the name must be 1 to {LONGEST_VIEW_NAME} printable characters")
        try:
            name = plain_name(name)
        except ValueError as error:
            raise ViewError(f"the name {error}") from error
        if len(address) > LONGEST_ADDRESS or not ADDRESS.fullmatch(address):
            raise ViewError("the address must be that of a page with a view, of at most 4,000 characters")
        with self._translate_errors(name), self._database.writing() as connection:
            found = connection.execute(sa.select(saved_views).where(saved_views.c.name == name)).one_or_none()
            if found is not None and found.key_id != by:
                raise ViewError(f"somebody else has a view {name!r}; choose another name")
            if found is not None:
                mine = saved_views.c.id == found.id
                connection.execute(sa.update(saved_views).where(mine).values(address=address))
                view_id = found.id
            else:
                count = connection.scalar(sa.select(sa.func.count()).select_from(saved_views)) or 0
                if count >= MOST_VIEWS:
                    raise ViewError(f"{MOST_VIEWS:,} views are saved already; delete one first")
                view_id, now = new_id(), self._database.read_clock(connection)
                row = {"id": view_id, "name": name, "address": address, "created_at": now, "key_id": by}
                connection.execute(sa.insert(saved_views), row)
        return self.get(view_id)

    @staticmethod
    @contextmanager
    def _translate_errors(name: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.IntegrityError as error:  # two at once, on PostgreSQL
            raise ViewError(f"somebody has just saved a view {name!r}; choose another name") from error

    def get(self, view_id: str) -> SavedView:
        """One of them. Raises `NotFoundError`, and `DamagedError` where its address is none of ours."""
        found = self._find(view_id)
        try:
            read_address(found.address)
        except DamagedError as error:
            raise DamagedError(f"the stored address of view {view_id} {error}; save it again under its name") from error
        return found

    def _find(self, view_id: str) -> SavedView:
        with self._database.reading() as connection:
            row = connection.execute(_VIEWS.where(saved_views.c.id == validate_id(view_id))).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no saved view {view_id!r}")
        return SavedView(**row._mapping)

    def list_all(self) -> tuple[SavedView, ...]:
        """All of them, by name, whatever their address: to open one is to `get` it."""
        return self._read_sorted(_VIEWS)

    def list_for_page(self, path: str) -> tuple[SavedView, ...]:
        """Those of one page, by name."""
        address = saved_views.c.address
        return self._read_sorted(_VIEWS.where(sa.or_(address == path, address.startswith(path + "?", autoescape=True))))

    def _read_sorted(self, query: sa.Select[Any]) -> tuple[SavedView, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(
            sorted((SavedView(**row._mapping) for row in rows), key=lambda one: (one.name.casefold(), one.name))
        )

    def delete(self, view_id: str, *, by: str | None, is_admin: bool) -> SavedView:
        """Forget it; of another key only an admin may. Raises `ViewError`, `NotFoundError`."""
        found = self._find(view_id)
        if found.key_id not in (None, by) and not is_admin:
            raise ViewError(f"{found.name!r} is a view of another key; its owner or an admin may delete it")
        with self._database.writing() as connection:
            connection.execute(sa.delete(saved_views).where(saved_views.c.id == found.id))
        return found


_VIEWS = sa.select(saved_views, keys.c.label.label("owner")).select_from(
    saved_views.outerjoin(keys, keys.c.id == saved_views.c.key_id)
)
