"""The schema's history (Alembic). There is no way back but a backup."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from orchestrator.errors import StoreError
from orchestrator.store.tables import metadata

FORMER_REVISIONS = ("0024", "0025")
"""The last revisions of the history before this one; the first revision of this one begins at either."""


def migrate(connection: Connection) -> None:
    """Bring the schema to this version's, inside the caller's transaction. Raises `StoreError` for one that this
    version does not know."""
    current = current_revision(connection)
    if current is not None and (unknown := unknown_schema(current)) is not None:
        raise StoreError("the database has the schema {}: {}".format(*unknown))
    config = _config()
    config.attributes["connection"] = connection
    if current is None:
        metadata.create_all(connection)
        command.stamp(config, "head")
        return
    if current in FORMER_REVISIONS:
        command.stamp(config, "base", purge=True)
    command.upgrade(config, "head")


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the database; None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def unknown_schema(current: str) -> tuple[str, str] | None:
    """Return the fault of a database of this revision, and the way out; None if this version has a way from it."""
    revisions = [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]
    if current in (*FORMER_REVISIONS, *revisions):
        return None
    if current.isdigit() and current < FORMER_REVISIONS[0]:  # revisions of this history begin with a letter
        oldest, newest = FORMER_REVISIONS
        fault = f"{current}, which is older than {oldest}, the oldest that this version can bring to its own"
        return fault, f"open it once with the last adapm-bench of the schema {newest}, then with this one"
    fault = f"{current}, which this version does not know; its newest is {max(revisions)}"
    return fault, "install the newer adapm-bench that made it, or go back to a backup from before"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
