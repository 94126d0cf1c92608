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
from worker.records.result import Environment, Result, Verdict

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
    from worker.reporting.reporter import MemoryReporter  # torch
    from worker.run import Folders
    from worker.run import run as train

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
    if unequal := _differences(said.environment, result.environment):
        return _compare_elsewhere(bundle, run, result, unequal)
    theirs = bundle.points.get(run.id)
    for name in LOSSES:
        if theirs is None or not np.array_equal(theirs.step, points.step):
            raise BundleError("rerun", f"{run.id}: its points are at other steps")
        if not np.array_equal(theirs.values[name], points.values[name], equal_nan=True):
            raise BundleError("rerun", f"{run.id}: its {name} is another on the same kind of machine")
    if result.final_val_loss != said.final_val_loss or result.verdict is not said.verdict:
        raise BundleError("rerun", f"{run.id}: it ended otherwise on the same kind of machine: {result.verdict_reason}")
    return Rerun(run=run, exact=True, told=f"{len(points):,} points are the same to the bit")


def _differences(one: Environment, other: Environment) -> list[str]:
    return [name.replace("_", " ") for name in SAME_KIND if getattr(one, name) != getattr(other, name)]


def _compare_elsewhere(bundle: Bundle, run: RunRecord, result: Result, unequal: list[str]) -> Rerun:
    """Where one more seed of the candidate would end, with 95 %: the t-interval of a prediction over its seeds."""
    said = run.result.final_val_loss if run.result else None
    assert said is not None
    losses = [
        other.result.final_val_loss
        for other in bundle.runs
        if (other.candidate, other.lr, other.model, other.steps_total)
        == (run.candidate, run.lr, run.model, run.steps_total)
        and other.result is not None
        and other.result.final_val_loss is not None
    ]
    where = f"on another kind of machine ({', '.join(unequal)})"
    if len(losses) < 2:
        raise BundleError(
            "rerun", f"{run.id}: nothing says how far seeds differ, {where}; choose a run with more seeds"
        )
    half = t_quantile(len(losses) - 1, 0.975) * statistics.stdev(losses) * math.sqrt(1 + 1 / len(losses))
    here = result.final_val_loss
    if here is None or abs(here - said) > half:
        ended = "without a finite loss" if here is None else f"at {here:.4f}"
        raise BundleError("rerun", f"{run.id}: it ended {ended}, not within {half:.4f} of {said:.4f}, {where}")
    return Rerun(run=run, exact=False, told=f"{here:.4f}, within {half:.4f} of {said:.4f}, {where}")
