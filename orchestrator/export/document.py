"""An experiment as one document: what was asked, where and how it ran, the answer, every run. For keeping."""

from orchestrator.analysis.laws.fit import FitError
from orchestrator.analysis.laws.records import FitReport
from orchestrator.export.provenance import Provenance, provenance
from orchestrator.kinds.experiment import Answer
from orchestrator.records import CellRecord, Comparison, ExperimentRecord, RunRecord
from orchestrator.services.bench import Bench
from orchestrator.sweeps.records import SweepReport
from worker.records.result import Record


class ExperimentDocument(Record):
    """Everything about an experiment but for the series of its runs, which are exported as tables."""

    provenance: Provenance
    experiment: ExperimentRecord
    comparison: Comparison | None
    """Of a scaling experiment that of its largest model; null for a sweep."""
    sweep: SweepReport | None = None
    """What a sweep found; null for other experiments."""
    cells: tuple[CellRecord, ...] = ()
    """Of a scaling experiment."""
    fit: FitReport | None = None
    """Of a scaling experiment; null where its losses cannot be fitted."""
    runs: tuple[RunRecord, ...]


def document(bench: Bench, experiment_id: str, bench_version: str) -> ExperimentDocument:
    """The document as of now; raises `NotFoundError`."""
    experiment, runs = bench.experiment(experiment_id), tuple(bench.all_runs(experiment_id))
    answer = experiment.spec.answer
    return ExperimentDocument(
        provenance=provenance(experiment, runs, bench_version),
        experiment=experiment,
        comparison=None if answer is Answer.FINDINGS else bench.compare(experiment_id),
        sweep=bench.sweep(experiment_id) if answer is Answer.FINDINGS else None,
        cells=bench.cells(experiment_id) if answer is Answer.LAW else (),
        fit=_fit(bench, experiment_id) if answer is Answer.LAW else None,
        runs=runs,
    )


def _fit(bench: Bench, experiment_id: str) -> FitReport | None:
    try:
        return bench.fit([experiment_id])
    except FitError:
        return None
