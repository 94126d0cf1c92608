"""`adapm-bench submit FILE`: queue an experiment."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import plain, print_json
from api.cli.service import Json, Url, connected

if TYPE_CHECKING:
    from orchestrator.records import ExperimentRecord

SpecFile = Annotated[
    Path,
    typer.Argument(help="YAML, JSON or TOML; -: YAML or JSON from standard input.", metavar="FILE", allow_dash=True),
]
Key = Annotated[str | None, typer.Option(help="Idempotency key: submitting again with it changes nothing.")]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(submit)


def submit(file: SpecFile, key: Key = None, url: Url = None, json: Json = False) -> None:
    """Queue an experiment; a faulty specification is refused with every fault at once."""
    from api.cli.experiments.specs import read_spec, refuse
    from api.client.client import ClientError

    if key is not None and not (key.strip() and key.isprintable() and key.isascii()):
        refuse(f"--key {key!r} must be printable ASCII and not empty")
    spec = read_spec(file)
    if "optimizer" in spec.fields and "candidates" not in spec.fields:
        source, words = plain(spec.source), f"adapm-bench run {plain(str(file))}"
        refuse(f"{source} is one run, which needs no queue: {words}; an experiment has candidates, and their seeds")
    with connected(url) as client:
        try:
            submission = client.submit(spec.fields, key=key)
        except ClientError as error:
            if not error.faults:
                raise
            spec.refuse(str(error).partition("\n")[0], error.faults)
        base = client.url
    if json:
        print_json(submission)
        return
    experiment = submission.experiment
    verb = "submitted" if submission.created else "was already submitted:"
    print(f"{verb} {experiment.id}: {plain(experiment.name)}, {_size(experiment)}")
    print(f"dashboard: {base}/experiments/{experiment.id}")
    print(f"next:      adapm-bench watch {experiment.id}")


def _size(experiment: "ExperimentRecord") -> str:
    """How many runs there will be."""
    from orchestrator.kinds.sweep import SweepSpec

    spec = experiment.spec
    return f"{spec.trial_count()} trials" if isinstance(spec, SweepSpec) else f"{experiment.counts.total} runs"
