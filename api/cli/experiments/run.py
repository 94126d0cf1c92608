"""`adapm-bench run FILE`: one training on this machine, without any service."""

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_core import from_json

from api.cli.console import INTERRUPTED, Json, ProgressLine, facts_text, fail, plain, print_json, refuse
from api.cli.experiments.specs import SpecFile, read_spec
from api.cli.settings import environment_settings
from dashboards.text import costs, formats
from orchestrator.jobs import RunStatus, state_word
from orchestrator.kinds.registry import KINDS
from orchestrator.settings import Settings
from orchestrator.specs.faults import validation_faults
from worker.data.prepared import missing_data
from worker.errors import TerminatedError, WorkerError
from worker.records.result import Point, Result
from worker.reporting.reporter import RESULT_NAME, FileReporter
from worker.spec.run import RunSpec
from worker.words import pluralize

Out = Annotated[
    Path | None,
    typer.Option(help="Folder for points, checkpoints and result; default: named by the specification's hash."),
]

Again = Annotated[
    bool, typer.Option("--again", help="Train from the first step, even if there is a result or a checkpoint.")
]


def run(file: SpecFile, out: Out = None, again: Again = False, json: Json = False) -> None:
    """Train one run on this machine, without a service; an interrupted one continues from its checkpoint."""
    text = read_spec(file)
    if "candidates" in text.fields or text.fields.get("kind") in KINDS:
        kind = plain(str(text.fields.get("kind", "comparison")))
        refuse(f"{plain(text.source)} is a {kind}, of many runs; submit it: adapm-bench submit {plain(str(file))}")
    try:
        spec = RunSpec.model_validate(text.fields)
    except ValidationError as error:
        faults = validation_faults(error, RunSpec)
        text.refuse(f"{pluralize(len(faults), 'fault')} in the specification:", faults)
    settings = environment_settings()
    folder = out or settings.data_folder / "local" / spec.content_hash()[:16]
    result = None if again else _earlier_result(folder, spec)
    if result is None:
        # What only a person can bring, data or weights: before torch is imported.
        if gaps := missing_data(spec.workload, settings.storage().datasets_folder(), settings.dataset_url):
            fail("\n".join(gaps))
        result = _train(spec, folder, settings, quiet=json, again=again)
    elif not json:
        print("already finished; --again trains it once more")
    if json:
        print_json(result)
        return
    print(f"{state_word(RunStatus.SUCCEEDED, result.verdict)}: {formats.sentence(result.verdict_reason)}")
    print(facts_text(costs.lines(result, spec)))
    print(f"result: {folder / 'result.json'}")


def _earlier_result(folder: Path, spec: RunSpec) -> Result | None:
    """Return the result of an earlier call: what it measured is not replaced by what a few last steps measure. Ends the
    command where training into the folder would write over a result that is not this specification's."""
    try:
        content = (folder / RESULT_NAME).read_bytes()
    except OSError:
        return None
    with suppress(ValueError, TypeError, KeyError):
        if from_json(content)["spec_hash"] == spec.content_hash():
            with suppress(ValidationError):  # of an earlier version
                return Result.model_validate_json(content)
            return None
    return refuse(f"{folder} has a {RESULT_NAME} of another run; --again replaces it, --out FOLDER uses another folder")


def _train(spec: RunSpec, folder: Path, settings: Settings, *, quiet: bool, again: bool) -> Result:
    from worker import run as training  # torch

    started, line = time.monotonic(), ProgressLine(quiet=quiet)
    try:
        reporter = ProgressReporter(folder, line, steps=spec.workload.budget.steps)
    except OSError as error:
        refuse(f"cannot write into {folder}: {error.strerror}; choose another folder with --out")
    if again:
        shutil.rmtree(folder / training.CHECKPOINT_FOLDER, ignore_errors=True)
    elif (folder / training.CHECKPOINT_FOLDER).exists() and not quiet:
        print(f"{folder} has a checkpoint; continuing from it", file=sys.stderr)
    try:
        datasets, url = settings.storage().datasets_folder(), settings.dataset_url
        folders = training.Folders(run_folder=folder, dataset_folder=datasets, dataset_url=url)
        with line:
            return training.run(spec, reporter, folders)
    except TerminatedError:
        fail("stopped with a checkpoint; the same command continues from there", INTERRUPTED)
    except WorkerError as error:
        fail(f"error after {time.monotonic() - started:.0f} s: {error}")


class ProgressReporter(FileReporter):
    """A `FileReporter` that also says how far the training is, on standard error."""

    def __init__(self, folder: Path, line: ProgressLine, *, steps: int) -> None:
        """Report into `folder` a training of `steps`."""
        super().__init__(folder)
        self._line, self._steps = line, steps
        self._evaluated = ""

    def point(self, point: Point) -> None:
        """Write the point, and a line of progress where it is time for one."""
        super().point(point)
        if point.val_loss is not None:
            self._evaluated = f"val loss {formats.loss(point.val_loss)} at step {point.step}"
        parts = [f"step {point.step}/{self._steps}", f"train loss {formats.loss(point.train_loss)}"]
        parts += [self._evaluated] if self._evaluated else []
        if point.step_seconds is not None:
            parts.append(f"{formats.seconds(point.step_seconds)} a step")
        self._line.show(", ".join(parts), last=point.step >= self._steps)
