"""From an experiment's records to a study's result: the same code for the service and for its clients."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import CandidateRow, Comparison, Interval, RunRecord
from orchestrator.studies.result import CandidateOutcome, Machine, PartResult, RunOutcome, StudyResult
from orchestrator.studies.study import Study, StudyFigures, StudyScale, identity
from orchestrator.sweeps.records import SweepFinding, SweepReport
from worker.records.result import Environment, Observation

DIGITS = 10
"""Significant digits that are kept of figures: far below what a re-run on another machine could repeat."""


@dataclass(frozen=True, kw_only=True)
class ResultSource:
    """The source of results."""

    compare: Callable[[str], Comparison]
    sweep: Callable[[str], SweepReport]
    runs: Callable[[str], Iterable[RunRecord]]
    """All runs of an experiment."""
    observations: Callable[[str], Sequence[Observation]]
    """The observations of a run."""
    fit: Callable[[Sequence[str], FormName], FitReport | None]
    """Scaling laws of that form over experiments; None if their results have none."""


def gather(
    study: Study,
    figures: StudyFigures | None,
    scale: StudyScale,
    experiments: Mapping[str, str],
    source: ResultSource,
) -> StudyResult:
    """Return the result of the experiments that there are: `experiments` has the id of each part's."""
    parts: list[PartResult] = []
    machines: dict[Machine, None] = {}
    planned = study.scales[scale]
    for name, spec in planned.items():
        if (experiment_id := experiments.get(name)) is not None:
            runs = tuple(source.runs(experiment_id))
            parts.append(_part(name, spec, figures, experiment_id, runs, source))
            machines |= {machine(run.result.environment): None for run in runs if run.result}
    complete = len(parts) == len(planned) and all(part.complete for part in parts)
    law = figures.law if figures else None
    fit = source.fit(tuple(experiments.values()), law) if law is not None and complete else None
    return StudyResult(study=study.name, scale=scale, parts=tuple(parts), fit=fit, machines=tuple(machines))


def machine(environment: Environment) -> Machine:
    """Return the machine of a measurement, without the host's name."""
    return Machine(**environment.model_dump(exclude={"host"}))


def round_figures(value: float) -> float:
    """Return the value with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _part(
    name: str,
    spec: ExperimentSpec,
    figures: StudyFigures | None,
    experiment_id: str,
    runs: Sequence[RunRecord],
    source: ResultSource,
) -> PartResult:
    answer: Comparison | SweepReport
    if spec.answer is AnswerKind.FINDINGS:
        answer = source.sweep(experiment_id)
        candidates = tuple(_best_trial(finding) for finding in answer.findings)
    else:
        answer = source.compare(experiment_id)
        candidates = tuple(_candidate(row) for row in answer.rows)
    if isinstance(spec, ComparisonSpec):
        runs = [run for run in runs if run.seed in spec.seeds]
    return PartResult(
        name=name,
        identity=identity(spec),
        complete=answer.complete,
        loss_unit=answer.loss_unit,
        candidates=candidates,
        runs=tuple(_run(spec, figures, run, source) for run in runs),
    )


def _run(spec: ExperimentSpec, figures: StudyFigures | None, run: RunRecord, source: ResultSource) -> RunOutcome:
    result = run.result
    if result is None:
        return RunOutcome(candidate=run.candidate, lr=run.lr, seed=run.seed, ended=run.status.value)
    observed = figures.extract(result) if figures and figures.extract else {}
    if figures and figures.observe and run.status in TERMINAL:
        observed = observed | figures.observe(source.observations(run.id))
    return RunOutcome(
        candidate=run.candidate,
        lr=run.lr,
        seed=run.seed,
        ended=result.verdict.value,
        loss=None if result.final_val_loss is None else round_figures(result.final_val_loss),
        tokens=result.tokens,
        spec_hash=result.spec_hash[:16],
        observed={name: round_figures(value) for name, value in observed.items()},
        hyperparameters=spec.searched_parameters(run.position, run.spec) if run.spec else {},
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


def _candidate(row: CandidateRow) -> CandidateOutcome:
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
        # Without a finite loss at any rate, all that have a result.
        lost=row.lost_runs() if row.best() else sum(row.verdicts.values()),
        state_bytes=row.optimizer_state_bytes,
    )
