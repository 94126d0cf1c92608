"""A small experiment that was really trained, in this process, and its bundle: tuned regressions of some 50 ms each."""

import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.bundles.layout import Bundle, raw_files
from api.bundles.signing import sign
from api.bundles.verification import recompute
from orchestrator.analysis.candidates import run_fact
from orchestrator.columns import Columns, columns_of
from orchestrator.export.cells import Format
from orchestrator.export.document import ExperimentDocument, provenance
from orchestrator.export.files import write_series
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.services.analysis import validation_curve
from tests.factories.comparison import experiment_record, run_record
from tests.factories.reporters import MemoryReporter
from worker.records.result import Result
from worker.run import Folders
from worker.run import run as train

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
STEPS = 20
SPEC: Mapping[str, Any] = {
    "name": "momentum on a regression",
    "workload": {
        "task": {"kind": "regression", "dimension": 20},
        "budget": {"steps": STEPS},
        "evaluation": {"every_steps": 5},
    },
    "candidates": [
        {"optimizer": "sgd", "learning_rates": [0.02]},
        {"optimizer": "asgd", "learning_rates": [0.02]},
    ],
    "seeds": [1, 2, 3],
    "tuning": {"seeds": [7], "trials": 5},
}
BEGAN = 1_767_225_600.0


@dataclass(frozen=True, kw_only=True)
class Content:
    """The raw content of a bundle, to be changed."""

    experiment: ExperimentRecord
    runs: tuple[RunRecord, ...]
    points: Mapping[str, Columns]

    def files(self, document: ExperimentDocument | None = None, key: Ed25519PrivateKey = KEY) -> dict[str, bytes]:
        """All files of its bundle, with what follows from it, or with another document."""
        written = document or self.document
        points = io.BytesIO()
        with_points = [run for run in self.runs if run.id in self.points]
        write_series(lambda run_id: self.points[run_id], with_points, points, Format.PARQUET)
        files = raw_files(written, points.getvalue())
        return {**files, **sign(files, written.provenance, key)}

    @cached_property
    def document(self) -> ExperimentDocument:
        """The document of the content."""
        template = provenance(self.experiment, self.runs, version("adapm-bench"))
        raw = ExperimentDocument(
            provenance=template.model_copy(update={"written_at": BEGAN + 1e6}),
            experiment=self.experiment,
            comparison=None,
            runs=self.runs,
        )
        curves = {run_id: validation_curve(points) for run_id, points in self.points.items()}
        return recompute(Bundle(document=raw, stored_figures={}, curves=curves))


EXPERIMENT = "k3v9m2x710"
Trained = tuple[PlannedRun, Result, Columns]


@cache
def trained_content(experiment_id: str = EXPERIMENT) -> Content:
    """Every run that the specification plans and its tuning rule adds, trained once in this process; of another id once
    more, as another installation would, which takes other times to the same losses."""
    spec = ComparisonSpec.model_validate(SPEC)
    trained: list[Trained] = []
    added: Sequence[PlannedRun] = spec.first_runs()
    while added:
        trained += [(run, *_train(run)) for run in added]
        added = spec.follow_up_runs([run_fact(run) for run in _content(spec, experiment_id, trained).runs])
    return _content(spec, experiment_id, trained)


def _content(spec: ComparisonSpec, experiment_id: str, trained: Sequence[Trained]) -> Content:
    runs = tuple(_run_record(experiment_id, run, index, result) for index, (run, result, _) in enumerate(trained))
    counts: dict[Any, int] = {}
    for run in runs:
        assert run.result is not None
        counts[run.result.verdict] = counts.get(run.result.verdict, 0) + 1
    counts.pop("converged", None)
    record = experiment_record(spec, len(runs), experiment_id)
    steps = STEPS * len(runs)
    experiment = record.model_copy(
        update={
            "created_at": BEGAN,
            "ended_at": BEGAN + 60.0 * len(runs),
            "counts": record.counts.model_copy(update={"by_verdict": counts}),
            "progress": record.progress.model_copy(update={"steps_done": steps, "steps_total": steps}),
        }
    )
    points = {run.id: of_run for run, (_, _, of_run) in zip(runs, trained, strict=True)}
    return Content(experiment=experiment, runs=runs, points=points)


def _train(planned: PlannedRun) -> tuple[Result, Columns]:
    reporter = MemoryReporter()
    with tempfile.TemporaryDirectory() as folder:
        result = train(planned.spec, reporter, Folders(run_folder=Path(folder), dataset_folder=Path(folder)))
    return result, columns_of(reporter.points)


def _run_record(experiment_id: str, planned: PlannedRun, position: int, result: Result) -> RunRecord:
    times = {
        "step": result.steps,
        "created_at": BEGAN,
        "started_at": BEGAN + 60.0 * position + 1,
        "ended_at": BEGAN + 60.0 * position + 50,
        "device_seconds": result.device_seconds + 0.5,
    }
    return run_record(planned, position, result, experiment_id).model_copy(update=times)
