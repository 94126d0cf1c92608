"""`Keyring`: the keys of a service. A key is shown once and kept as a hash; a login is a session of a key.

Keys are random, so that an unsalted hash of them is enough; both kinds of secret are looked up by a hash or an id, and
compared in constant time.
"""

import secrets
from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import DiskFullError, NotFoundError
from orchestrator.keys import SECRET, KeyRecord, KeyRequest, NewKey
from orchestrator.store.admin.quotas import usage
from orchestrator.store.database import DAY_SECONDS, Database
from orchestrator.store.ids import new_id, validate_id
from orchestrator.store.run_rows import token_hash
from orchestrator.store.tables import keys, sessions

SECRET_BYTES = 32
SESSION_SECONDS = DAY_SECONDS / 2
"""A working day; then the key is asked for again."""
USED_SECONDS = 60.0
"""`last_used_at` is written no more often than this: a key that is used all the time costs no write each time."""

COLUMNS = tuple(keys.c[name] for name in KeyRecord.model_fields if name in keys.c)


class Keyring:
    """The keys in a database. Thread-safe; every method may raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, request: KeyRequest) -> NewKey:
        """Make a key. Its secret is in the answer and nowhere else."""
        key_id = new_id()
        secret = f"adapm_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        with self._database.writing() as connection:
            now = self._database.read_clock(connection)
            days = request.expires_in_days
            values = request.model_dump(exclude={"expires_in_days"})
            values |= {"expires_at": None if days is None else now + days * DAY_SECONDS}
            connection.execute(
                sa.insert(keys).values(id=key_id, secret_hash=token_hash(secret), created_at=now, **values)
            )
            return NewKey(key=self._record(connection, key_id), secret=secret)

    def list_keys(self) -> tuple[KeyRecord, ...]:
        """Return all keys, the newest first, revoked and expired ones too, with what their experiments use."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(*COLUMNS).order_by(keys.c.created_at.desc(), keys.c.id)).all()
            used = usage(connection, [row.id for row in rows], self._database.read_clock(connection))
        return tuple(_record(row._mapping, used[row.id].runs, used[row.id].device_hours) for row in rows)

    def revoke(self, key_id: str) -> KeyRecord:
        """Let a key open nothing any more, its sessions included; its experiments go on. Raises `NotFoundError`."""
        with self._database.writing() as connection:
            now = self._database.read_clock(connection)
            condition = keys.c.id == validate_id(key_id)
            moment = sa.func.coalesce(keys.c.revoked_at, now)
            connection.execute(sa.update(keys).where(condition).values(revoked_at=moment))
            connection.execute(sa.delete(sessions).where(sessions.c.key_id == validate_id(key_id)))
            return self._record(connection, key_id)

    def has_keys(self) -> bool:
        """Return whether there is, or ever was, a key: a service whose keys are all revoked is closed, not open."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(keys.c.id).limit(1)).first() is not None

    def open_with(self, secret: str) -> KeyRecord | None:
        """Return the key of that secret, if it opens anything now."""
        match = SECRET.fullmatch(secret)
        if match is None:
            return None
        with self._database.reading() as connection:
            query = sa.select(*COLUMNS, keys.c.secret_hash).where(keys.c.id == match["id"], self._is_valid())
            row = connection.execute(query).one_or_none()
        if row is None or not secrets.compare_digest(row.secret_hash, token_hash(secret)):
            return None
        return self._note_use(_record(row._mapping))

    def log_in(self, key_id: str) -> str:
        """Begin a session of a key that was shown; returns the cookie's value."""
        token = secrets.token_urlsafe(SECRET_BYTES)
        with self._database.writing() as connection:
            now = self._database.read_clock(connection)
            connection.execute(sa.delete(sessions).where(sessions.c.expires_at <= now))
            row = {"token_hash": token_hash(token), "key_id": key_id, "expires_at": now + SESSION_SECONDS}
            connection.execute(sa.insert(sessions).values(row))
        return token

    def open_session(self, token: str) -> KeyRecord | None:
        """Return the key that the session belongs to, if both are good still."""
        joined = keys.join(sessions, sessions.c.key_id == keys.c.id)
        conditions = sessions.c.token_hash == token_hash(token), sessions.c.expires_at > self._database.now()
        query = sa.select(*COLUMNS).select_from(joined).where(*conditions, self._is_valid())
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else self._note_use(_record(row._mapping))

    def log_out(self, token: str) -> None:
        """End a session; one that is unknown is not a fault."""
        with self._database.writing() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.token_hash == token_hash(token)))

    def _record(self, connection: Connection, key_id: str) -> KeyRecord:
        row = connection.execute(sa.select(*COLUMNS).where(keys.c.id == validate_id(key_id))).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no key {key_id!r}")
        used = usage(connection, [row.id], self._database.read_clock(connection))[row.id]
        return _record(row._mapping, used.runs, used.device_hours)

    def _is_valid(self) -> sa.ColumnElement[bool]:
        in_time = sa.or_(keys.c.expires_at.is_(None), keys.c.expires_at > self._database.now())
        return sa.and_(keys.c.revoked_at.is_(None), in_time)

    def _note_use(self, key: KeyRecord) -> KeyRecord:
        """Note that the key was used, once a minute at most; a database without room keeps nobody out."""
        stale = sa.or_(keys.c.last_used_at.is_(None), keys.c.last_used_at < self._database.now() - USED_SECONDS)
        conditions = keys.c.id == key.id, stale
        with self._database.reading() as connection:
            if connection.execute(sa.select(keys.c.id).where(*conditions)).first() is None:
                return key
        with suppress(DiskFullError), self._database.writing(durable=False) as connection:
            connection.execute(sa.update(keys).where(*conditions).values(last_used_at=self._database.now()))
        return key


def _record(row: sa.RowMapping, runs: int = 0, device_hours: float = 0.0) -> KeyRecord:
    values = {column.name: row[column.name] for column in COLUMNS}
    return KeyRecord.model_validate(values | {"runs_at_work": runs, "device_hours_used": device_hours})
