"""The verbs' access to the service, and exit codes of its refusals. Verbs without a service do not import this: the
client takes half a second to load.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from api.cli.console import BAD_INPUT, FAILED, UNREACHABLE, complain, fail
from api.cli.settings import URL_VARIABLE, environment_settings
from api.client.client import Client
from api.client.messages import ClientError, InputError
from api.processes.data_folder import read_note

Url = Annotated[
    str | None,
    typer.Option(help=f"The service; default: ${URL_VARIABLE}, else the one on the data folder.", metavar="URL"),
]


def service_url(option: str | None) -> str:
    """Return the service's address: the one given, else the environment's, else the one that `up` noted in the data
    folder. Without a note the command ends: another service may listen on the usual port, with other data."""
    if url := option or os.environ.get(URL_VARIABLE):
        return url
    folder = environment_settings().data_folder
    if (note := read_note(folder)) is not None:
        return note.url
    return fail(
        f"no service runs on {folder.absolute()}\n"
        f"start one with `adapm-bench up`, or name another with --url or ${URL_VARIABLE}",
        UNREACHABLE,
    )


@contextmanager
def open_client(url: str | None, *, retries: int = 1) -> Iterator[Client]:
    """Open a client of the service; an error ends the command with a sentence and an exit code."""
    with exit_on_refusal(), Client(service_url(url), retries=retries, short_ids=True) as client:
        yield client


def print_hindrance(client: Client) -> None:
    """Say on standard error why the service begins no run now, a full disk for instance, if anything is in the way."""
    if hindrance := client.health().hindrance:
        complain(hindrance)


@contextmanager
def exit_on_refusal() -> Iterator[None]:
    """End the command with what the service said, where it refuses or does not answer."""
    try:
        yield
    except ClientError as error:
        complain(str(error))
        if error.status is None and not isinstance(error, InputError):
            fail("start one with `adapm-bench up`, or name another with --url", UNREACHABLE)
        if error.status == 401:
            complain("set $ADAPM_BENCH_KEY, or name a file with the key: adapm-bench --key-file FILE …")
        raise typer.Exit(BAD_INPUT if error.status in (None, 400, 413, 422) else FAILED) from None
