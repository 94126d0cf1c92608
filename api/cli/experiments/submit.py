"""`adapm-bench submit FILE`: queue an experiment; `validate FILE`: what it would be, or every fault; nothing is stored.

`validate` asks the service, which knows what runs took; where none is named and none runs on the data folder, it looks
by itself, without an estimate of hours.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.console import complain, plain, print_json
from api.cli.service import BAD_INPUT, FAILED, URL_VARIABLE, Json, Url, environment_settings, open_client

if TYPE_CHECKING:
    from orchestrator.records import ExperimentRecord
    from orchestrator.specs.preview import Preview

SpecFile = Annotated[
    Path,
    typer.Argument(help="YAML, JSON or TOML; -: YAML or JSON from standard input.", metavar="FILE", allow_dash=True),
]
Key = Annotated[str | None, typer.Option(help="Idempotency key: submitting again with it changes nothing.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(validate)
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
    with open_client(url) as client:
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
    return f"{experiment.runs_planned()} {experiment.spec.run_noun}s"


def validate(file: SpecFile, url: Url = None, json: Json = False) -> None:
    """Check a specification of any kind: runs, tokens, hours and known memory, or every fault with its line."""
    from api.cli.experiments.specs import read_spec

    text = read_spec(file)
    found = _looked_at(text.fields, url)
    if json:
        print_json(found)
    elif found.faults:
        text.refuse(
            f"{len(found.faults)} fault{'s' if len(found.faults) != 1 else ''} in the specification:", found.faults
        )
    else:
        _print(found)
    if found.faults:
        raise typer.Exit(BAD_INPUT)
    for sentence in found.missing:
        complain(plain(sentence))
    if found.missing:
        raise typer.Exit(FAILED)
    if not json and str(file) != "-":
        print(f"next:         adapm-bench submit {plain(str(file))}")


def _looked_at(fields: dict[str, Any], url: str | None) -> "Preview":
    from api.processes.data_folder import read_note

    settings = environment_settings()
    if url or os.environ.get(URL_VARIABLE) or read_note(settings.data_folder) is not None:
        with open_client(url) as client:
            return client.validate(fields)
    from orchestrator.specs.footprints import Footprints
    from orchestrator.specs.preview import preview
    from worker.data.prepared import missing

    datasets = settings.datasets_folder()
    return preview(
        fields,
        missing=lambda spec: missing(spec.workload, datasets),
        measured=lambda _: (),
        footprints=Footprints(settings.data_folder.resolve() / "footprints"),
    )


def _print(found: "Preview") -> None:
    from dashboards.text import formats
    from orchestrator.kinds.registry import KINDS

    bound = "at most " if found.growing else ""
    kind = KINDS[found.kind or ""]  # there are no faults
    runs = kind.run_noun if found.runs == 1 else f"{kind.run_noun}s"
    print(f"valid: {plain(found.name or '')}, a {kind.title} of {bound}{formats.count(found.runs)} {runs}")
    print(f"models:       {', '.join(found.models)}")
    print(f"steps:        {bound}{formats.count(found.steps)}")
    print(f"{found.batch_unit + ':':<14}{bound}{formats.compact(found.tokens)}")
    print(f"device-hours: {_hours(found)}")
    for one in found.memory:
        print(f"memory:       {plain(one.candidate)} on {one.model}: at least {formats.size(one.total_bytes)}")
    if not found.memory and found.batch_unit == "tokens":  # a regression trains no network
        print(f"memory:       not counted yet; see `adapm-bench memory {found.models[-1]}`, or /memory of the service")


def _hours(found: "Preview") -> str:
    from dashboards.text import formats

    cost = found.cost
    if cost is None:
        budget = found.device_hours_budget
        return "unknown: no such run was measured here" if budget is None else f"at most {formats.hours(budget)}"
    notes = [f"by {cost.measured_runs} measured run{'s' if cost.measured_runs != 1 else ''} on {cost.device}"]
    notes += [f"{', '.join(map(plain, cost.assumed))}: the mean of the others"] if cost.assumed else []
    notes += [f"without {', '.join(cost.unmeasured)}, never measured here"] if cost.unmeasured else []
    return f"{'at most' if found.growing else 'about'} {formats.hours(cost.device_hours)}, {'; '.join(notes)}"
