"""From an experiment's records to a study's evidence: the same code for the service and for its clients."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import CandidateRow, Comparison, Interval, RunRecord
from orchestrator.studies.evidence import CandidateOutcome, Evidence, Machine, PartEvidence, RunOutcome, StudyScale
from orchestrator.studies.study import Study, StudyPart
from orchestrator.sweeps.records import SweepFinding, SweepReport
from worker.records.result import Environment, Observation

DIGITS = 10
"""Significant digits that are kept of figures: far below what a re-run on another machine could repeat."""


@dataclass(frozen=True, kw_only=True)
class EvidenceSource:
    """What evidence is read from."""

    compare: Callable[[str], Comparison]
    sweep: Callable[[str], SweepReport]
    runs: Callable[[str], Iterable[RunRecord]]
    """All runs of an experiment."""
    observations: Callable[[str], Sequence[Observation]]
    """Of a run."""
    fit: Callable[[Sequence[str], FormName], FitReport | None]
    """Scaling laws of that form over experiments; None where their results have none."""


def gather(study: Study, scale: StudyScale, experiments: Mapping[str, str], source: EvidenceSource) -> Evidence:
    """The evidence of the experiments that there are: `experiments` has the id of each part's."""
    parts: list[PartEvidence] = []
    machines: dict[Machine, None] = {}
    for part in study.plans[scale].parts:
        if (experiment_id := experiments.get(part.name)) is not None:
            runs = tuple(source.runs(experiment_id))
            parts.append(_part(study, part, experiment_id, runs, source))
            machines |= {machine(run.result.environment): None for run in runs if run.result}
    complete = len(parts) == len(study.plans[scale].parts) and all(part.complete for part in parts)
    fit = source.fit(tuple(experiments.values()), study.law) if study.law is not None and complete else None
    return Evidence(study=study.name, scale=scale, parts=tuple(parts), fit=fit, machines=tuple(machines))


def machine(environment: Environment) -> Machine:
    """Where it was measured, without the host's name."""
    return Machine(**{name: getattr(environment, name) for name in Machine.model_fields})


def round_figures(value: float) -> float:
    """To `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _part(
    study: Study, part: StudyPart, experiment_id: str, runs: Sequence[RunRecord], source: EvidenceSource
) -> PartEvidence:
    answer: Comparison | SweepReport
    if part.spec.answer is AnswerKind.FINDINGS:
        answer = source.sweep(experiment_id)
        candidates = tuple(_best_trial(each) for each in answer.findings)
    else:
        answer = source.compare(experiment_id)
        baseline_lost = sum(_lost_runs(row) for row in answer.rows if row.is_baseline)
        candidates = tuple(_candidate(row, baseline_lost) for row in answer.rows)
    return PartEvidence(
        name=part.name,
        spec_hash=part.spec.content_hash(),
        complete=answer.complete,
        loss_unit=answer.loss_unit,
        candidates=candidates,
        runs=tuple(_run(study, part, run, source) for run in runs),
    )


def _run(study: Study, part: StudyPart, run: RunRecord, source: EvidenceSource) -> RunOutcome:
    result = run.result
    if result is None:
        return RunOutcome(candidate=run.candidate, lr=run.lr, seed=run.seed, ended=run.status.value)
    observed = study.extract(result) if study.extract else {}
    if study.observe and run.status in TERMINAL:
        observed = observed | study.observe(source.observations(run.id))
    return RunOutcome(
        candidate=run.candidate,
        lr=run.lr,
        seed=run.seed,
        ended=result.verdict.value,
        loss=None if result.final_val_loss is None else round_figures(result.final_val_loss),
        parameters=result.parameters,
        tokens=result.tokens,
        spec_hash=result.spec_hash[:16],
        observed={name: round_figures(value) for name, value in observed.items()},
        hyperparameters=part.spec.searched_parameters(run.position, run.spec) if run.spec else {},
    )


def _best_trial(finding: SweepFinding) -> CandidateOutcome:
    best = finding.best
    loss = best.objective if best else None
    return CandidateOutcome(
        candidate=finding.candidate,
        title=finding.title,
        loss=None if loss is None else Interval(mean=loss, low=None, high=None, n=1),
        lost=finding.diverged + finding.out_of_memory,
        state_bytes=best.optimizer_state_bytes if best else None,
    )


def _lost_runs(row: CandidateRow) -> int:
    """Judged runs without a trained model; without a finite loss at any rate, all that have a result."""
    return row.lost_runs() if row.best() else sum(row.verdicts.values())


def _candidate(row: CandidateRow, baseline_lost: int) -> CandidateOutcome:
    time = row.time_to_target
    return CandidateOutcome(
        candidate=row.candidate,
        title=row.title,
        is_baseline=row.is_baseline,
        best_lr=row.best_lr,
        edge_of_grid=row.edge_of_grid,
        loss=row.val_loss,
        difference=row.difference,
        speed_up=time.speed_up if time else None,
        lost=_lost_runs(row),
        baseline_lost=0 if row.is_baseline else baseline_lost,
        state_bytes=row.optimizer_state_bytes,
    )
