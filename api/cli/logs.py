"""`adapm-bench logs RUN`: what a run's process printed, the newest attempt's first of all."""

from typing import Annotated

import typer

from api.cli.console import complain, plain, print_json
from api.cli.service import FAILED, Json, Url, connected

RunId = Annotated[str, typer.Argument(help="A run's id, or its beginning.", metavar="RUN")]
Attempt = Annotated[int | None, typer.Option(min=1, help="Which attempt; default: the newest.")]
Lines = Annotated[int, typer.Option("--tail", min=1, help="How many lines from the end.")]

LINE_BYTES = 400
"""So long a line may be on average, tracebacks included."""


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(logs)


def logs(run: RunId, attempt: Attempt = None, tail: Lines = 100, url: Url = None, json: Json = False) -> None:
    """Show the end of what an attempt of a run printed."""
    with connected(url) as client:
        record = client.run(run)
        run, newest = record.id, record.attempt
        if newest == 0:
            complain(f"run {run} has not begun: nothing was printed yet")
            raise typer.Exit(FAILED)
        text = client.log(run, attempt or newest, tail_bytes=min(tail * LINE_BYTES, 2**22))
    lines = text.splitlines()[-tail:]
    if json:
        print_json({"run": run, "attempt": attempt or newest, "lines": lines})
        return
    for line in lines:
        print(plain(line))
