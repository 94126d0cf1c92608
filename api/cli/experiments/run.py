"""`adapm-bench run FILE`: one training on this machine, without any service."""

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain, plain, print_json
from api.cli.experiments.submit import SpecFile
from api.cli.service import BAD_INPUT, FAILED, INTERRUPTED, Json, environment_settings

if TYPE_CHECKING:
    from api.cli.experiments.specs import SpecText
    from orchestrator.settings import Settings
    from worker.records.result import Result
    from worker.spec.run import RunSpec

Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for points, checkpoints and result; default: by the spec's hash.")
]

Again = Annotated[bool, typer.Option("--again", help="Train from the first step, whatever is there already.")]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(run)


def run(file: SpecFile, out: Out = None, again: Again = False, json: Json = False) -> None:
    """Train one run specification here and now; one that was interrupted goes on from its checkpoint."""
    from api.cli.experiments.specs import read_spec, refuse
    from dashboards.text import costs, formats
    from orchestrator.jobs import RunStatus, state_word
    from orchestrator.kinds.registry import KINDS

    text = read_spec(file)
    if "candidates" in text.fields or text.fields.get("kind") in KINDS:
        kind = plain(str(text.fields.get("kind", "comparison")))
        refuse(f"{plain(text.source)} is a {kind}, of many runs; queue it: adapm-bench submit {plain(str(file))}")
    spec = _validated(text)
    settings = environment_settings()
    folder = out or settings.data_folder / "local" / spec.content_hash()[:16]
    if not again and (what := _in_the_way(folder, spec)):
        refuse(f"{folder} has {what}; --again replaces it, --out FOLDER trains into another folder")
    result = None if again else _finished(folder, spec)
    if result is None:
        _require_data(spec, settings)
        result = _train(spec, folder, settings, quiet=json, again=again)
    elif not json:
        print("finished before; --again trains it anew")
    if json:
        print_json(result)
        return
    print(f"{state_word(RunStatus.SUCCEEDED, result.verdict)}: {formats.sentence(result.verdict_reason)}")
    lines = costs.lines(result, spec)
    width = max([20, *(len(name) + 2 for name, _ in lines)])
    for name, value in lines:
        print(f"{name:<{width}}{value}")
    print(f"result: {folder / 'result.json'}")


def _validated(text: "SpecText") -> "RunSpec":
    from pydantic import ValidationError

    from api.records import validation_faults
    from orchestrator.specs.hidden_faults import with_hidden_faults
    from worker.spec.run import RunSpec

    try:
        return RunSpec.model_validate(text.fields)
    except ValidationError as error:
        faults = with_hidden_faults(validation_faults(error, RunSpec), text.fields, RunSpec)
        text.refuse(f"{len(faults)} fault{'s' if len(faults) != 1 else ''} in the specification:", faults)


def _require_data(spec: "RunSpec", settings: "Settings") -> None:
    """End the command where data or weights are missing that only a person can bring: before torch is imported."""
    from worker.data.prepared import missing

    found = missing(spec.workload, settings.datasets_folder(), settings.dataset_url)
    for sentence in found:
        complain(plain(sentence))
    if found:
        raise typer.Exit(FAILED)


def _finished(folder: Path, spec: "RunSpec") -> "Result | None":
    """The result of an earlier call: what it measured is not replaced by what a few last steps measure."""
    from pydantic import ValidationError

    from worker.records.result import Result
    from worker.reporting.reporter import RESULT_NAME

    try:
        result = Result.model_validate_json((folder / RESULT_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    return result if result.spec_hash == spec.content_hash() else None


def _in_the_way(folder: Path, spec: "RunSpec") -> str | None:
    """What training into the folder would write over: a result that is not this specification's."""
    from pydantic_core import from_json

    from worker.reporting.reporter import RESULT_NAME

    try:
        fields = from_json((folder / RESULT_NAME).read_bytes())
    except OSError:
        return None
    except ValueError:
        return f"a {RESULT_NAME} that cannot be read"
    found = fields.get("spec_hash") if isinstance(fields, dict) else None
    if not isinstance(found, str):
        return f"a {RESULT_NAME} that is no run's"
    if found == spec.content_hash():
        return None
    return f"the result of another specification ({plain(found[:12])}, not {spec.content_hash()[:12]})"


def _train(spec: "RunSpec", folder: Path, settings: "Settings", *, quiet: bool, again: bool) -> "Result":
    from api.cli.experiments.local import ProgressReporter
    from worker.errors import TerminatedError, WorkerError
    from worker.run import CHECKPOINT_FOLDER, Folders
    from worker.run import run as train

    started = time.monotonic()
    try:
        reporter = ProgressReporter(folder, steps=spec.workload.budget.steps, quiet=quiet)
    except OSError as error:
        complain(f"cannot write into {folder}: {error.strerror}; choose another folder with --out")
        raise typer.Exit(BAD_INPUT) from error
    if again:
        shutil.rmtree(folder / CHECKPOINT_FOLDER, ignore_errors=True)
    elif (folder / CHECKPOINT_FOLDER).exists() and not quiet:
        print(f"{folder} has a checkpoint: going on from it", file=sys.stderr)
    try:
        datasets, url = settings.datasets_folder(), settings.dataset_url
        return train(spec, reporter, Folders(run_folder=folder, dataset_folder=datasets, dataset_url=url))
    except TerminatedError as error:
        complain("stopped with a checkpoint; the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from error
    except WorkerError as error:
        complain(f"error after {time.monotonic() - started:.0f} s: {error}")
        raise typer.Exit(FAILED) from error
