"""`adapm-bench submit FILE`: queue an experiment; `validate FILE`: what it would be, or every fault; nothing is stored.

`validate` asks the service, which knows what runs took; where none is named and none runs on the data folder, it looks
by itself, without an estimate of hours.
"""

import os
from typing import Annotated, Any

import typer

from api.cli.console import BAD_INPUT, FAILED, Json, complain, plain, print_json, program, refuse
from api.cli.experiments.specs import STDIN, SpecFile, read_spec
from api.cli.service import Url, open_client, print_hindrance
from api.cli.settings import URL_VARIABLE, environment_settings
from api.client.messages import ClientError
from api.processes.data_folder import read_note
from dashboards.text import formats, words
from orchestrator.analysis.laws.verdicts import law_warnings
from orchestrator.jobs import RunStatus
from orchestrator.kinds.registry import KINDS
from orchestrator.records import SubmissionReceipt
from orchestrator.specs.footprints import Footprints
from orchestrator.specs.preview import Preview, preview
from worker.data.prepared import data_warnings, missing_data
from worker.words import pluralize

Key = Annotated[str | None, typer.Option(help="Idempotency key: submitting again with the same key changes nothing.")]


def submit(file: SpecFile, key: Key = None, url: Url = None, json: Json = False) -> None:
    """Queue an experiment, or list every fault of its specification."""
    if key is not None and not (key.strip() and key.isprintable() and key.isascii()):
        refuse(f"--key {key!r} must be printable ASCII and not empty")
    spec = read_spec(file)
    if "optimizer" in spec.fields and "candidates" not in spec.fields:
        command = f"{program()} run {file}"
        refuse(f"{spec.source} is one run, which needs no queue: {command}; an experiment has candidates and seeds")
    with open_client(url) as client:
        try:
            submission = client.submit(spec.fields, key=key)
        except ClientError as error:
            if not error.faults:
                raise
            spec.refuse(str(error).partition("\n")[0], error.faults)
        print_json(submission) if json else print_submission(submission, client.url)
        print_hindrance(client)


def print_submission(submission: SubmissionReceipt, url: str) -> None:
    """Print what was submitted to the service at that URL, and what to do next."""
    experiment = submission.experiment
    verb = "submitted" if submission.created else "was already submitted:"
    runs = f"{experiment.runs_planned()} {experiment.spec.run_noun}s"
    state = "" if submission.created else f" ({experiment.counts.words()})"
    print(f"{verb} {experiment.id}: {plain(experiment.name)}, {runs}{state}")
    print(f"dashboard: {url}/experiments/{experiment.id}")
    lost = experiment.counts.by_status.keys() & {RunStatus.CANCELLED, RunStatus.FAILED}
    step = "watch" if not experiment.counts.done() else "retry" if lost else "show"
    print(f"next:      {program()} {step} {experiment.id}")


def validate(file: SpecFile, url: Url = None, json: Json = False) -> None:
    """Check a specification: show its runs, tokens, hours and known memory, or every fault with its line."""
    text = read_spec(file)
    preview = _preview(text.fields, url)
    if json:
        print_json(preview)
    elif preview.faults:
        text.refuse(f"{pluralize(len(preview.faults), 'fault')} in the specification:", preview.faults)
    else:
        for sentence in preview.missing:
            complain(sentence)
        _print(preview)
    if preview.faults:
        raise typer.Exit(BAD_INPUT)
    if preview.missing:
        raise typer.Exit(FAILED)
    if not json and str(file) != STDIN:
        print(f"next:         {program()} submit {plain(str(file))}")


def _preview(fields: dict[str, Any], url: str | None) -> Preview:
    settings = environment_settings()
    if url or os.environ.get(URL_VARIABLE) or read_note(settings.data_folder) is not None:
        with open_client(url) as client:
            return client.validate(fields)
    datasets = settings.storage().datasets_folder()
    return preview(
        fields,
        missing=lambda spec: missing_data(spec.workload, datasets),
        warnings=lambda spec: [*spec.warnings(), *law_warnings(spec.cells()), *data_warnings(spec.workload, datasets)],
        measured=lambda _: (),
        footprints=Footprints(settings.data_folder.resolve() / "footprints"),
        power=lambda _: None,
    )


def _print(preview: Preview) -> None:
    bound = "at most " if preview.growing else ""
    kind = KINDS[preview.kind or ""]  # there are no faults
    runs = kind.run_noun if preview.runs == 1 else f"{kind.run_noun}s"
    verdict = "valid, but its data is missing" if preview.missing else "valid"
    print(f"{verdict}: {plain(preview.name or '')}, a {kind.title} of {bound}{formats.count(preview.runs)} {runs}")
    if preview.runs_from:
        print(f"runs:         {preview.runs_from}")
    print(f"models:       {', '.join(preview.models)}")
    print(f"steps:        {bound}{formats.count(preview.steps)}")
    print(f"{preview.batch_unit + ':':<14}{bound}{formats.compact(preview.tokens)}")
    print(f"device time:  {_device_time(preview)}")
    for minimum in preview.memory:
        print(
            f"memory:       {plain(minimum.candidate)} on {minimum.model}: at least {formats.size(minimum.total_bytes)}"
        )
    if preview.memory and preview.uncounted:
        uncounted_models = ", ".join(preview.uncounted)
        print(f"memory:       not counted yet on {uncounted_models}; see `adapm-bench models {preview.uncounted[0]}`")
    if not preview.memory and preview.batch_unit == "tokens":  # a regression trains no network
        print(
            f"memory:       not counted yet; see `adapm-bench models {preview.models[-1]}`, or /memory of the service"
        )
    for sentence in preview.warnings:
        print(f"warning:      {sentence}")
    print_power(preview)


def print_power(preview: Preview) -> None:
    """Print the differences that a comparison can show, or the reason why they are unknown."""
    if preview.power is not None:
        print(f"can show:     {words.power_text(preview.power)}")
        for sentence in words.power_details(preview.power):
            print(f"              {sentence}")
    if preview.power_unknown is not None:
        print(f"can show:     unknown: {preview.power_unknown}")


def _device_time(preview: Preview) -> str:
    cost = preview.cost
    if cost is None:
        return "unknown: no such run was measured here"
    notes = [f"by {pluralize(cost.measured_runs, 'measured run')} on {cost.device}"]
    notes += [f"{', '.join(map(plain, cost.assumed))}: the mean of the others"] if cost.assumed else []
    notes += [f"without {', '.join(cost.unmeasured)}, never measured here"] if cost.unmeasured else []
    return f"{'at most' if preview.growing else 'about'} {formats.device_time(cost.device_hours)}, {'; '.join(notes)}"
