"""A study's result as a test wants it: candidates with losses by seed, at any scale."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from orchestrator.analysis.comparison import compare
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import Comparison, ExperimentRecord, RunRecord
from orchestrator.studies.claims import Finding, judge
from orchestrator.studies.gathering import ResultSource, gather
from orchestrator.studies.registry import figures_of
from orchestrator.studies.result import StudyResult
from orchestrator.studies.study import Study, StudyScale
from orchestrator.sweeps.records import SweepReport
from tests.factories.comparison import Outcome, evaluated_on, experiment_record, falling, run_record, tuned_records
from tests.factories.stores import result
from worker.records.result import Observation, Result, Verdict

DIVERGED = result(final_val_loss=None, verdict=Verdict.DIVERGED)

Ends = Mapping[str, Sequence[Outcome]]
"""Candidate → how the run of each seed ended."""
Seen = Sequence[Observation] | Callable[[RunRecord], Sequence[Observation]]
"""The observations of every run, or of each."""
DRAWS = 100
"""The draws of the bootstrap of fits: enough to separate the worlds of the tests."""


def made_result(
    study: Study,
    ends: Ends | Callable[[str], Ends],
    *,
    scale: StudyScale = StudyScale.TINY,
    only: Sequence[str] | None = None,
    observations: Seen = (),
    state_shares: Mapping[str, float] | None = None,
) -> StudyResult:
    """The study's own experiments, each of which ended as `ends` says, for all parts or by the name of each; with
    `only`, those parts alone. `state_shares`: of the usual state, by candidate. Laws are really fitted."""
    measured = {}
    for part, spec in study.scales[scale].items():
        assert isinstance(spec, ComparisonSpec)
        if only is not None and part not in only:
            continue
        table = ends(part) if callable(ends) else ends
        table = {name: _with_state(outcomes, (state_shares or {}).get(name, 1.0)) for name, outcomes in table.items()}
        measured[part] = _ended(spec, table, experiment=part)
    runs = {run.id: run for _, part_runs in measured.values() for run in part_runs}
    return gather(
        study,
        figures_of(study.name),
        scale,
        {name: name for name in measured},
        ResultSource(
            compare=lambda name: _compared(*measured[name]),
            sweep=_no_sweep,
            runs=lambda name: measured[name][1],
            observations=lambda run_id: _seen(observations, runs[run_id]),
            fit=lambda names, form: fit_experiments([measured[name] for name in names], form=form, draws=DRAWS),
        ),
    )


def judged(study: Study, result: StudyResult) -> Finding:
    """Return the result's finding on the study's claims."""
    return judge(study, result, figures_of(study.name))


def _with_state(outcomes: Sequence[Outcome], share: float) -> list[Outcome]:
    results = [result(final_val_loss=outcome) if isinstance(outcome, float) else outcome for outcome in outcomes]
    return [
        outcome.model_copy(update={"optimizer_state_bytes": round(share * outcome.optimizer_state_bytes)})
        if isinstance(outcome, Result) and outcome.optimizer_state_bytes is not None
        else outcome
        for outcome in results
    ]


def _seen(observations: Seen, run: RunRecord) -> Sequence[Observation]:
    if run.result is None:
        return ()
    return observations(run) if callable(observations) else observations


def _no_sweep(experiment_id: str) -> SweepReport:
    raise AssertionError("no part is a sweep")


def with_tokens(loss: float, tokens: int, parameters: int | None = None) -> Result:
    """A trained run of so many tokens, and of a model of so many parameters."""
    size = {} if parameters is None else {"parameters": parameters}
    return result(final_val_loss=loss).model_copy(update={"tokens": tokens, **size})


def _ended(spec: ComparisonSpec, ends: Ends, *, experiment: str) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    def outcome(run: PlannedRun) -> Outcome:
        if run.spec.seed not in spec.seeds or run.candidate not in ends:
            return _of_tuning(run, spec, ends)
        outcomes = ends[run.candidate]
        return outcomes[spec.seeds.index(run.spec.seed) % len(outcomes)]

    planned = _planned(spec.model_dump_json(), frozenset(ends))
    runs = tuple(run_record(run, index, outcome(run), experiment) for index, run in enumerate(planned))
    return experiment_record(spec, len(runs), experiment), runs


@cache
def _planned(spec: str, candidates: frozenset[str]) -> tuple[PlannedRun, ...]:
    """All runs where these candidates can be trained: how those end that judge leads to no others."""
    comparison = ComparisonSpec.model_validate_json(spec)
    _, runs = tuned_records(comparison, lambda run: _of_tuning(run, comparison, candidates))
    return tuple(PlannedRun(candidate=run.candidate, spec=run.spec) for run in runs)


def _of_tuning(run: PlannedRun, spec: ComparisonSpec, candidates: Collection[str]) -> Outcome:
    """The nearer to the middle of the candidate's rates, the lower."""
    if run.candidate not in candidates:
        return RunStatus.FAILED
    rates = spec.candidate(run.candidate).learning_rates
    return 8.0 + 1e-4 * math.log(run.spec.optimizer.lr / rates[len(rates) // 2]) ** 2


def _compared(experiment: ExperimentRecord, runs: tuple[RunRecord, ...]) -> Comparison:
    """Compare by losses of so much text that its error is nothing: tests give true losses."""
    spec = experiment.spec
    assert isinstance(spec, ComparisonSpec)
    experiment = experiment.model_copy(update={"spec": evaluated_on(spec)})
    return compare(experiment, runs, {run.id: falling(run) for run in runs if run.seed in spec.seeds})
