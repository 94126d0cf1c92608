"""An experiment as one document: what was asked, where and how it ran, the answer, every run. For keeping.

`Provenance` says where its figures come from: specification, data, code, machines and time.
"""

import time
from collections.abc import Iterable, Sequence

from orchestrator.analysis.laws.fit import FitError
from orchestrator.analysis.laws.records import FitReport
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import CellRecord, Comparison, ExperimentRecord, RunRecord
from orchestrator.services.analysis import Analysis
from orchestrator.sweeps.records import SweepReport
from worker.records.result import Environment, Record


class Provenance(Record):
    """What somebody needs to make the same figures again, or to know why theirs differ."""

    experiment_id: str
    name: str
    kind: str
    cloned_from: str | None = None
    """The experiment whose specification was queued once more; null where none was."""
    spec_hash: str
    """SHA-256 of the canonical specification."""
    data_hashes: tuple[str, ...]
    """Of the tokens that the runs read; one, unless a note says otherwise."""
    environments: tuple[Environment, ...]
    """Of all results, each once; their commits stand below."""
    commits: tuple[str, ...]
    """Of the code that trained, where it is known."""
    bench_version: str
    """Of the service that wrote this."""
    submitted_at: float
    ended_at: float | None
    written_at: float
    runs: int
    results: int
    device_seconds: float
    """Of every attempt of every run."""


def provenance(experiment: ExperimentRecord, runs: Iterable[RunRecord], bench_version: str) -> Provenance:
    """From all runs of an experiment."""
    every = tuple(runs)
    results = [run.result for run in every if run.result is not None]
    machines = [each.environment.model_copy(update={"commit": None}) for each in results]
    environments = {each.model_dump_json(): each for each in machines}
    return Provenance(
        experiment_id=experiment.id,
        name=experiment.name,
        kind=experiment.kind,
        cloned_from=experiment.cloned_from,
        spec_hash=experiment.spec_hash,
        data_hashes=tuple(sorted({each.data_hash for each in results})),
        environments=tuple(environments[key] for key in sorted(environments)),
        commits=tuple(sorted({each.environment.commit for each in results if each.environment.commit})),
        bench_version=bench_version,
        submitted_at=experiment.created_at,
        ended_at=experiment.ended_at,
        written_at=time.time(),
        runs=len(every),
        results=len(results),
        device_seconds=sum(run.device_seconds for run in every),
    )


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
