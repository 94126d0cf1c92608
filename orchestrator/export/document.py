"""An experiment as one document: what was asked, where and how it ran, the answer, every run. For keeping.

`Provenance` says where its figures come from: specification, data, code, machines and time.
"""

import time
from collections.abc import Iterable, Sequence

from orchestrator.analysis.laws.records import FitReport
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import CellRecord, Comparison, ExperimentRecord, RunRecord
from orchestrator.services.analysis import Analysis
from orchestrator.sweeps.records import SweepReport
from worker.records.result import Environment, Record


class Provenance(Record):
    """The data that somebody needs to make the same figures again, or to explain different ones."""

    experiment_id: str
    name: str
    kind: str
    cloned_from: str | None = None
    """The experiment whose specification was queued once more; null if none was."""
    spec_hash: str
    """SHA-256 of the canonical specification."""
    data_hashes: tuple[str, ...]
    """The hashes of the tokens that the runs read; one, unless a note says otherwise."""
    environments: tuple[Environment, ...]
    """The environments of all results, without duplicates; their commits stand below."""
    commits: tuple[str, ...]
    """The commits of the training code, where known."""
    bench_version: str
    """The version of the service that wrote this."""
    submitted_at: float
    ended_at: float | None
    written_at: float
    runs: int
    results: int
    device_seconds: float
    """The device time of every attempt of every run."""


def provenance(experiment: ExperimentRecord, runs: Iterable[RunRecord], bench_version: str) -> Provenance:
    """Return the provenance from all runs of an experiment."""
    every = tuple(runs)
    results = [run.result for run in every if run.result is not None]
    machines = [result.environment.model_copy(update={"commit": None}) for result in results]
    environments = {machine.model_dump_json(): machine for machine in machines}
    return Provenance(
        experiment_id=experiment.id,
        name=experiment.name,
        kind=experiment.kind,
        cloned_from=experiment.cloned_from,
        spec_hash=experiment.spec_hash,
        data_hashes=tuple(sorted({result.data_hash for result in results})),
        environments=tuple(environments[key] for key in sorted(environments)),
        commits=tuple(sorted({result.environment.commit for result in results if result.environment.commit})),
        bench_version=bench_version,
        submitted_at=experiment.created_at,
        ended_at=experiment.ended_at,
        written_at=time.time(),
        runs=len(every),
        results=len(results),
        device_seconds=sum(run.device_seconds for run in every),
    )


class ExperimentDocument(Record):
    """An experiment without the series of its runs, which are exported as tables."""

    provenance: Provenance
    experiment: ExperimentRecord
    comparison: Comparison | None
    """The comparison; of a scaling experiment that of its largest model; null for a sweep."""
    sweep: SweepReport | None = None
    """The results of a sweep; null for other experiments."""
    cells: tuple[CellRecord, ...] = ()
    """The cells of a scaling experiment."""
    fit: FitReport | None = None
    """The law of a scaling experiment; null if its losses cannot be fitted."""
    runs: tuple[RunRecord, ...]


def document(
    experiment: ExperimentRecord, runs: Sequence[RunRecord], analysis: Analysis, bench_version: str
) -> ExperimentDocument:
    """Return the document of an experiment with all of its runs."""
    experiment_id = experiment.id
    answer = experiment.spec.answer
    return ExperimentDocument(
        provenance=provenance(experiment, runs, bench_version),
        experiment=experiment,
        comparison=None if answer is AnswerKind.FINDINGS else analysis.compare(experiment_id),
        sweep=analysis.sweep(experiment_id) if answer is AnswerKind.FINDINGS else None,
        cells=analysis.cells(experiment_id) if answer is AnswerKind.LAW else (),
        fit=analysis.law([experiment_id]) if answer is AnswerKind.LAW else None,
        runs=tuple(runs),
    )
