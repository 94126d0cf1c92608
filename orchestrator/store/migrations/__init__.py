"""The schema's history (Alembic): `migrate` brings a database to a revision, inside the caller's transaction."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.engine import Connection

from orchestrator.errors import StoreError


def migrate(connection: Connection, revision: str) -> None:
    """Upgrade or downgrade to `revision` (`head`, `base` or an id). Raises `StoreError` for a newer database."""
    config = _config()
    config.attributes["connection"] = connection
    current = current_revision(connection)
    if current is not None and current not in _known(config):
        raise StoreError(
            f"the database has the schema {current!r} of another version of adapm-bench, which this version does not "
            "know; start the version that made it, or use another database"
        )
    try:
        if revision == "base" or (current is not None and revision in _below(config, current)):
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
    except CommandError as error:
        raise StoreError(f"the database cannot be brought to the schema {revision!r}: {error}") from error


def current_revision(connection: Connection) -> str | None:
    """The revision of the database; None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str:
    """The revision that this version of the code works with."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None  # there is one file at least
    return newest


def known_revisions() -> frozenset[str]:
    """Every revision that this version of the code has a way to and from."""
    return _known(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def _known(config: Config) -> frozenset[str]:
    return frozenset(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())


def _below(config: Config, current: str) -> frozenset[str]:
    """The revisions that lie before `current`."""
    scripts = ScriptDirectory.from_config(config).iterate_revisions(current, "base")
    return frozenset(script.revision for script in scripts) - {current}
