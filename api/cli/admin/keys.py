"""`adapm-bench keys create|ls|revoke|audit`: make, list and revoke keys, and read the audit log.

Without `--url` these verbs work on the database itself, so that an operator makes the first key before a service runs;
a user who can write the data folder needs no key.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from api.cli.admin.db import open_database, private_folder
from api.cli.console import BAD_INPUT, Json, Yes, complain, console, plain, print_json, refuse, text_table
from api.cli.service import Url, open_client
from api.cli.settings import URL_VARIABLE, Data, environment_settings
from api.client.client import Client
from dashboards.text import formats
from orchestrator.keys import AuditRecord, KeyRecord, KeyRequest, NewKey, Scope
from orchestrator.specs.faults import validation_faults
from orchestrator.store.admin.audit import AuditLine, AuditLog
from orchestrator.store.admin.keyring import Keyring
from orchestrator.store.database import Database

verbs = typer.Typer(help="Keys to the service, and what was changed with them.", no_args_is_help=True)

HERE = "this machine, by its command line"
"""The address in the audit log of what was done on the database itself."""


@verbs.command()
def create(
    label: Annotated[str, typer.Option(help="The key's user or purpose.")],
    scope: Annotated[
        Scope, typer.Option(help="viewer reads, submitter also changes runs, admin also makes keys.")
    ] = Scope.VIEWER,
    expires_in_days: Annotated[float | None, typer.Option(help="Days until it expires; default: never.")] = None,
    runs_at_once: Annotated[
        int | None, typer.Option(help="Runs that may be active at once; default: no limit.")
    ] = None,
    device_hours_a_day: Annotated[
        float | None, typer.Option(help="Device-hours within 24 hours; then its runs wait; default: no limit.")
    ] = None,
    yes: Yes = False,
    url: Url = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a key and print it once. The first key closes the service to everybody else."""
    fields = {"label": label, "scope": scope, "expires_in_days": expires_in_days}
    fields |= {"runs_at_once": runs_at_once, "device_hours_a_day": device_hours_a_day}
    try:
        wanted = KeyRequest.model_validate(fields)
    except ValidationError as error:
        faults = validation_faults(error, KeyRequest)
        options = [f"--{fault.pointer.strip('/').replace('_', '-')}" for fault in faults]
        refuse("\n".join(f"{o} {fault.value!r}: {fault.allowed}" for o, fault in zip(options, faults, strict=True)))
    with _keys(url, data) as keys:
        if not keys.api_keys():
            _announce_first_key(wanted, yes)
        new_key = keys.create_key(wanted)
    if json:
        print_json(new_key)
        return
    print(new_key.secret)
    complain(
        f"the key {new_key.key.id} for {plain(new_key.key.label)}, scope {new_key.key.scope}; it is not shown again"
    )
    complain("use it:  export ADAPM_BENCH_KEY=…   or   adapm-bench --key-file FILE …")


def _announce_first_key(wanted: KeyRequest, yes: bool) -> None:
    """Warn before the first key is made; on a terminal the user can still decline."""
    complain(
        "this is the service's first key: from now on pages, REST and this command line refuse everybody without a key"
    )
    complain("revoking it does not open the service again, so that work done under keys stays protected")
    complain("if you lose it, make another one on the service's machine, without --url")
    if wanted.scope is not Scope.ADMIN:
        complain(f"a {wanted.scope} key cannot make other keys; the first one should be --scope admin")
    if not yes and _is_interactive() and not typer.confirm("close the service to everybody without a key?", err=True):
        raise typer.Exit(BAD_INPUT)


def _is_interactive() -> bool:
    return sys.stdin.isatty()


@verbs.command()
def ls(url: Url = None, data: Data = None, json: Json = False) -> None:
    """List all keys, including revoked and expired ones; secrets are not shown."""
    with _keys(url, data) as keys:
        records = keys.api_keys()
    print_json(records) if json else console().print(_key_table(records))


@verbs.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID")], url: Url = None, data: Data = None, json: Json = False
) -> None:
    """Revoke a key within two seconds; its experiments continue."""
    with _keys(url, data) as keys:
        revoked = keys.revoke_key(key_id)
    print_json(revoked) if json else print(f"revoked {revoked.id} ({plain(revoked.label)})")


@verbs.command()
def audit(
    key: Annotated[
        str | None, typer.Argument(help="Only changes made with the key of this id.", metavar="[ID]")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 50,
    url: Url = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show who changed what, when, from where, and with what outcome; newest first."""
    with _keys(url, data) as keys:
        records = keys.audit(limit=limit, key_id=key)
    rows = [
        (formats.moment(line.at), line.label or line.key_id or "no key", line.address, line.action, line.target,
         str(line.outcome))
        for line in records
    ]  # fmt: skip
    titles = ("when", "who", "from", "what", "about", "outcome")
    print_json(records) if json else console().print(text_table(titles, rows))


@contextmanager
def _keys(url: str | None, data: Path | None) -> Iterator["Client | LocalKeys"]:
    """Yield the keys of the named service, else those of the data folder's database."""
    if url is None and data is None:
        url = os.environ.get(URL_VARIABLE)
    if url is not None:
        with open_client(url) as client:
            yield client
        return
    settings = environment_settings(data_folder=data)
    with private_folder(settings), open_database(settings) as database:
        database.migrate()
        yield LocalKeys(database)


class LocalKeys:
    """The keyring and the audit log of a database, with the methods of the service's client."""

    def __init__(self, database: Database) -> None:
        self._keyring, self._audit = Keyring(database), AuditLog(database)

    def create_key(self, wanted: KeyRequest) -> NewKey:
        """Make a key."""
        new_key = self._keyring.create(wanted)
        self._note("keys create", new_key.key.id)
        return new_key

    def api_keys(self) -> tuple[KeyRecord, ...]:
        """Return all keys."""
        return self._keyring.list_keys()

    def revoke_key(self, key_id: str) -> KeyRecord:
        """Revoke a key."""
        revoked = self._keyring.revoke(key_id)
        self._note("keys revoke", key_id)
        return revoked

    def audit(self, *, limit: int, key_id: str | None = None) -> tuple[AuditRecord, ...]:
        """Return the audit log, the newest first."""
        return self._audit.page(limit=limit, key_id=key_id)

    def _note(self, action: str, key_id: str) -> None:
        line = AuditLine(key_id=None, address=HERE, action=action, target=f"/v1/keys/{key_id}", outcome=200)
        self._audit.add(line)


def _key_table(keys: tuple[KeyRecord, ...]) -> Table:
    rows = [
        (
            key.id,
            key.label,
            key.scope.value,
            _state(key),
            formats.moment(key.last_used_at) if key.last_used_at else "never",
            f"{key.runs_at_work}" + (f" of {key.runs_at_once}" if key.runs_at_once is not None else ""),
            f"{key.device_hours_used:.2f}"
            + (f" of {key.device_hours_a_day:g}" if key.device_hours_a_day is not None else ""),
        )
        for key in keys
    ]
    return text_table(("id", "label", "scope", "state", "last used", "runs", "device-hours of 24 h"), rows)


def _state(key: KeyRecord) -> str:
    if key.revoked_at is not None:
        return f"revoked {formats.moment(key.revoked_at)}"
    if key.expires_at is None:
        return "good"
    return f"{'good until' if key.expires_at > time.time() else 'expired'} {formats.moment(key.expires_at)}"
