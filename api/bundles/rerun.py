"""One run of a bundle trained again, here: bit for bit on the same kind of machine, within the interval elsewhere."""

import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from api.bundles.layout import Bundle, BundleError
from orchestrator.analysis.statistics import t_quantile
from orchestrator.columns import Columns, columns_of
from orchestrator.records import RunRecord
from worker.records.result import Result, Verdict
from worker.reporting.reporter import MemoryReporter
from worker.run import Folders
from worker.run import run as train
from worker.words import pluralize

SAME_KIND = ("device", "device_name", "cuda", "threads", "torch", "transformers", "platform")
"""Where all of these are equal, a run has the same losses to the bit."""
LOSSES = ("train_loss", "val_loss")


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A run that was trained again and came to the same."""

    run: RunRecord
    exact: bool
    """Whether the machine is of the same kind, so that all losses are the same to the bit."""
    told: str


def runs_to_train(bundle: Bundle) -> tuple[RunRecord, ...]:
    """Those of one process that reached the end of their budget."""
    return tuple(
        run
        for run in bundle.runs
        if run.result is not None and run.result.verdict is Verdict.CONVERGED and run.result.processes == 1
    )


def train_again(bundle: Bundle, run: RunRecord, datasets: Path, dataset_url: str | None = None) -> Rerun:
    """Train the run in this process. Raises `BundleError` where it comes to something else, and `WorkerError`."""
    assert run.spec is not None
    assert run.result is not None
    reporter = MemoryReporter()
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            run.spec, reporter, Folders(run_folder=Path(folder), dataset_folder=datasets, dataset_url=dataset_url)
        )
    return compare(bundle, run, result, columns_of(reporter.points))


def compare(bundle: Bundle, run: RunRecord, result: Result, points: Columns) -> Rerun:
    """Whether a training came to what the bundle says of the run. Raises `BundleError`."""
    said = run.result
    assert said is not None
    if result.data_hash != said.data_hash:
        raise BundleError(
            "rerun", f"{run.id}: the data here is another: {result.data_hash[:12]}, {said.data_hash[:12]}"
        )
    here = result.environment
    if unequal := [name for name in SAME_KIND if getattr(said.environment, name) != getattr(here, name)]:
        return _compare_elsewhere(bundle, run, result, unequal)
    theirs = bundle.points.get(run.id)
    for name in LOSSES:
        if theirs is None or not np.array_equal(theirs.step, points.step):
            raise BundleError("rerun", f"{run.id}: its points are at other steps")
        if not np.array_equal(theirs.values[name], points.values[name], equal_nan=True):
            raise BundleError("rerun", f"{run.id}: its {name} is another on the same kind of machine")
    if result.final_val_loss != said.final_val_loss or result.verdict is not said.verdict:
        raise BundleError("rerun", f"{run.id}: it ended otherwise on the same kind of machine: {result.verdict_reason}")
    if result.optimizer_state_bytes != said.optimizer_state_bytes:
        state = f"{said.optimizer_state_bytes:,} there, {result.optimizer_state_bytes:,} here"
        raise BundleError("rerun", f"{run.id}: its optimizer keeps another number of bytes: {state}")
    return Rerun(run=run, exact=True, told=f"{pluralize(len(points), 'point is', 'points are')} the same to the bit")


def _compare_elsewhere(bundle: Bundle, run: RunRecord, result: Result, unequal: list[str]) -> Rerun:
    """Both what is said and what came here have to be where one more seed would end, with 95 %: the interval of a
    prediction from the candidate's other seeds. Who makes up all of them far apart is not found here."""
    said, here = run.result.final_val_loss if run.result else None, result.final_val_loss
    assert said is not None
    others = [
        other.result.final_val_loss
        for other in bundle.runs
        if (other.candidate, other.lr, other.model, other.steps_total)
        == (run.candidate, run.lr, run.model, run.steps_total)
        and other.id != run.id
        and other.result is not None
        and other.result.final_val_loss is not None
    ]
    where = f"on another kind of machine ({', '.join(unequal).replace('_', ' ')})"
    if len(others) < 2:
        raise BundleError(
            "rerun", f"{run.id}: nothing says how far seeds differ, {where}; choose a run with two other seeds"
        )
    middle = statistics.fmean(others)
    half = t_quantile(len(others) - 1, 0.975) * statistics.stdev(others) * math.sqrt(1 + 1 / len(others))
    for ended, who in ((here, "it ended"), (said, "it is said to have ended")):
        if ended is None or not abs(ended - middle) <= half:
            at = "without a finite loss" if ended is None else f"at {ended:.4f}"
            raise BundleError("rerun", f"{run.id}: {who} {at}, not within {half:.4f} of {middle:.4f}, {where}")
    return Rerun(
        run=run,
        exact=False,
        told=f"{here:.4f} here, {said:.4f} there, both within {half:.4f} of its other seeds, {where}",
    )
