"""`adapm-bench submit FILE`: queue an experiment."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import plain, print_json
from api.cli.service import Json, Url, connected

SpecFile = Annotated[
    Path, typer.Argument(help="YAML or JSON; - reads standard input.", metavar="FILE", allow_dash=True)
]
Key = Annotated[str | None, typer.Option(help="Idempotency key: submitting again with it changes nothing.")]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(submit)


def submit(file: SpecFile, key: Key = None, url: Url = None, json: Json = False) -> None:
    """Queue an experiment; a faulty specification is refused with every fault at once."""
    from api.cli.specs import read_spec, refuse

    if key is not None and not (key.strip() and key.isprintable() and key.isascii()):
        refuse(f"--key {key!r} must be printable ASCII and not empty")
    spec = read_spec(file)
    with connected(url) as client:
        submission = client.submit(spec, key=key)
        base = client.url
    if json:
        print_json(submission)
        return
    experiment = submission.experiment
    verb = "submitted" if submission.created else "was already submitted:"
    print(f"{verb} {experiment.id}: {plain(experiment.name)}, {experiment.counts.total} runs")
    print(f"dashboard: {base}/experiments/{experiment.id}")
    print(f"next:      adapm-bench watch {experiment.id}")
