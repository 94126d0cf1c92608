"""An experiment as one document: what was asked, where and how it ran, the answer, every run. For keeping."""

from collections.abc import Sequence

from orchestrator.analysis.laws.fit import FitError
from orchestrator.analysis.laws.records import FitReport
from orchestrator.export.provenance import Provenance, provenance
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import CellRecord, Comparison, ExperimentRecord, RunRecord
from orchestrator.services.analysis import Analysis
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


def document(
    experiment: ExperimentRecord, runs: Sequence[RunRecord], analysis: Analysis, bench_version: str
) -> ExperimentDocument:
    """The document of an experiment with all of its runs."""
    experiment_id = experiment.id
    answer = experiment.spec.answer
    return ExperimentDocument(
        provenance=provenance(experiment, runs, bench_version),
        experiment=experiment,
        comparison=None if answer is AnswerKind.FINDINGS else analysis.compare(experiment_id),
        sweep=analysis.sweep(experiment_id) if answer is AnswerKind.FINDINGS else None,
        cells=analysis.cells(experiment_id) if answer is AnswerKind.LAW else (),
        fit=_fit(analysis, experiment_id) if answer is AnswerKind.LAW else None,
        runs=tuple(runs),
    )


def _fit(analysis: Analysis, experiment_id: str) -> FitReport | None:
    try:
        return analysis.fit([experiment_id])
    except FitError:
        return None
