"""`adapm-bench db`: the database's schema, health and backup. No service is needed."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import FAILED, Json, complain, print_json
from api.cli.settings import Data, environment_settings
from api.processes.data_folder import keep_private, umask_of
from orchestrator.settings import Settings
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database

verbs = typer.Typer(help="Maintain the database: upgrade, check, backup.", no_args_is_help=True)


@verbs.command()
def upgrade(data: Data = None, json: Json = False) -> None:
    """Upgrade the schema to this version; `adapm-bench up` does so, too."""
    settings = environment_settings(data_folder=data)
    with private_folder(settings), open_database(settings) as database:
        old_revision, newest = maintenance.revision(database)
        database.migrate()
    if json:
        print_json({"before": old_revision, "revision": newest})
        return
    print(
        f"upgraded the schema from {old_revision or 'nothing'} to {newest}"
        if old_revision != newest
        else f"the schema is {newest}"
    )


@verbs.command()
def check(data: Data = None, json: Json = False) -> None:
    """Look for damage, and for runs whose state contradicts their results or leases. Exit code 1 if there is any."""
    with open_database(environment_settings(data_folder=data)) as database:
        faults = maintenance.faults(database)
    for fault in faults:
        complain(fault)
    if json:
        print_json({"sound": not faults, "faults": faults})
    if faults:
        raise typer.Exit(FAILED)
    if not json:
        print("the database is sound")


@verbs.command()
def backup(
    target: Annotated[
        Path, typer.Argument(help="The file to create; an existing one is not overwritten.", metavar="FILE")
    ],
    data: Data = None,
    json: Json = False,
) -> None:
    """Write a consistent copy of the database into FILE while the service runs: SQLite's own backup, or `pg_dump`."""
    settings = environment_settings(data_folder=data)
    maintenance.backup(settings.resolved_database_url(), target)
    way_back = maintenance.restore_command(settings.resolved_database_url(), target)
    if json:
        print_json({"file": target, "bytes": target.stat().st_size, "way_back": way_back})
        return
    print(f"{target}  {target.stat().st_size:,} bytes")
    print("to restore it, with the service stopped:")
    print(f"  {way_back}")


@contextmanager
def private_folder(settings: Settings) -> Iterator[None]:
    """Make the data folder if it is missing. Only the service's user can read it and its files."""
    with umask_of(settings.umask_bits()):
        keep_private(settings.data_folder, settings.umask_bits())
        yield


def open_database(settings: Settings) -> closing[Database]:
    """Open the settings' database, until the block ends."""
    return closing(Database(settings.resolved_database_url()))
