"""The answer to a sweep: records in, report out; and the comparison that follows from it. Pure functions.

runs ─► trials ─► the best one of each optimizer that ran the whole budget ─► which hyperparameters mattered ─► notes
                                        └► a comparison of the best ones over fresh seeds
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from optim.catalog.records import Scalar
from orchestrator.analysis.comparison import device_names
from orchestrator.errors import ConflictError
from orchestrator.jobs import TERMINAL, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.sweep import SearchedCandidate, SweepSpec
from orchestrator.records import SECONDS_PER_HOUR, ExperimentRecord, RunRecord
from orchestrator.sweeps.records import Importance, SweepFinding, SweepReport, TrialRow
from orchestrator.sweeps.trials import LOSS_IF_LOST, as_candidate
from orchestrator.tuning.search_spaces import Choice, share_of
from worker.records.result import Verdict
from worker.words import pluralize

Trials = Sequence[tuple[Mapping[str, Scalar], float]]
"""Hyperparameters with the loss."""
EDGE = 0.05
"""A best value within this share of a range's end is called at its edge."""
NAME_CHARACTERS = 120
TITLE_CHARACTERS = 40
"""The characters of a candidate's name, before the number of its trial."""


def sweep_spec(experiment: ExperimentRecord) -> SweepSpec:
    """Return the specification of an experiment that is a sweep. Raises `ConflictError` for any other."""
    if isinstance(experiment.spec, SweepSpec):
        return experiment.spec
    raise ConflictError(
        f"experiment {experiment.id} is a {experiment.kind} and no sweep; `adapm-bench show` tells of it"
    )


def report(experiment: ExperimentRecord, runs: Iterable[RunRecord], *, importance: bool = True) -> SweepReport:
    """Return the report of a sweep so far; without `importance` no second goes into loading Optuna."""
    spec = sweep_spec(experiment)
    runs = tuple(runs)
    trials = tuple(_trial(spec, run) for run in runs)
    numbers = range(len(spec.candidates))
    findings = sorted((_finding(spec, index, trials, importance=importance) for index in numbers), key=_rank)
    task = spec.workload.task
    return SweepReport(
        experiment_id=experiment.id,
        name=experiment.name,
        algorithm=spec.algorithm,
        complete=experiment.counts.done(),
        loss_name=task.loss_name,
        loss_unit=task.loss_unit,
        device=device_names(runs),
        trials_planned=spec.run_count(),
        device_hours=sum(run.device_seconds for run in runs) / SECONDS_PER_HOUR,
        findings=tuple(findings),
        trials=trials,
        notes=tuple(_notes(spec, experiment, trials, findings)),
    )


def best_so_far(trials: Sequence[TrialRow]) -> tuple[float | None, ...]:
    """Return for each trial the lowest objective up to it."""
    lowest: float | None = None
    best_objectives = []
    for trial in trials:
        if trial.objective is not None and (lowest is None or trial.objective < lowest):
            lowest = trial.objective
        best_objectives.append(lowest)
    return tuple(best_objectives)


def comparison_of_the_best(sweep: SweepReport, spec: SweepSpec, seed_count: int, *, best: int = 1) -> ComparisonSpec:
    """Return the comparison of each optimizer's `best` trials, over fresh seeds: the sweep's own seed would flatter
    what was chosen on it. Raises `ConflictError` before the sweep has ended, as the best may still change, and where an
    optimizer has no trial that ran the whole budget, or fewer than another: more chances for one of them would be
    unequal tuning."""
    if not sweep.complete:
        ended = sum(trial.status in TERMINAL for trial in sweep.trials)
        have = "has" if ended == 1 else "have"
        raise ConflictError(
            f"{ended} of {pluralize(sweep.trials_planned, 'trial')} of sweep {sweep.experiment_id} {have} ended, so "
            "that the best may still change; wait for the others, or cancel them: "
            f"adapm-bench cancel {sweep.experiment_id}"
        )
    if missing := [finding.title for finding in sweep.findings if finding.best is None]:
        raise ConflictError(
            f"no trial of {', '.join(missing)} in sweep {sweep.experiment_id} has run its budget and learned; "
            "submit a comparison of the others yourself"
        )
    seeds = [seed for seed in range(spec.seed + 1, spec.seed + 1 + seed_count) if seed <= 2**31 - 1]
    seeds += list(range(seed_count - len(seeds)))
    candidates = []
    for searched in spec.candidates:
        trials = [trial for trial in sweep.trials if trial.candidate == searched.name() and trial.objective is not None]
        if len(trials) < best:
            raise ConflictError(
                f"in sweep {sweep.experiment_id} {pluralize(len(trials), 'trial')} of {searched.name()} ran the whole "
                f"budget and learned, not {best}; take fewer"
            )
        for trial in sorted(trials, key=lambda trial: (trial.objective, trial.number))[:best]:
            candidate = as_candidate(searched, trial.parameters)
            label = f"{searched.name()[:TITLE_CHARACTERS]} trial {trial.number}" if best > 1 else candidate.label
            candidates.append(candidate.model_copy(update={"label": label}))
    return ComparisonSpec.model_construct(  # to be submitted: whether it would be taken today is asked then
        name=f"Best of {sweep.name}"[:NAME_CHARACTERS].strip(),
        workload=spec.workload,
        candidates=tuple(candidates),
        seeds=tuple(seeds),
        resources=spec.resources,
        priority=spec.priority,
    )


def _trial(spec: SweepSpec, run: RunRecord) -> TrialRow:
    result = run.result
    # What was tried is not known of a damaged trial, so that nothing follows from how good it was.
    converged = result is not None and result.verdict is Verdict.CONVERGED and run.spec is not None
    return TrialRow(
        number=run.position,
        run_id=run.id,
        candidate=run.candidate,
        parameters=spec.searched_parameters(run.position, run.spec) if run.spec else {},
        status=run.status,
        verdict=result.verdict if result else None,
        steps=result.steps if result else run.step,
        steps_total=run.steps_total,
        objective=result.final_val_loss if result and converged else None,
        last_val_loss=run.last_val_loss,
        optimizer_state_bytes=result.optimizer_state_bytes if result else None,
        peak_memory_bytes=result.peak_tensor_bytes() if result else None,
        device_seconds=run.device_seconds,
    )


def _finding(spec: SweepSpec, index: int, trials: Sequence[TrialRow], *, importance: bool) -> SweepFinding:
    searched = spec.candidates[index]
    candidate_trials = [trial for trial in trials if trial.number % len(spec.candidates) == index]
    verdicts = Counter(trial.verdict for trial in candidate_trials)
    finished = [trial for trial in candidate_trials if trial.objective is not None]
    best = min(finished, key=lambda trial: (trial.objective, trial.number), default=None)
    return SweepFinding(
        candidate=searched.name(),
        optimizer=searched.optimizer,
        title=searched.title(),
        best=best,
        trials=len(candidate_trials),
        converged=verdicts[Verdict.CONVERGED],
        stopped_early=verdicts[Verdict.STOPPED_EARLY],
        diverged=verdicts[Verdict.DIVERGED],
        out_of_memory=verdicts[Verdict.OUT_OF_MEMORY],
        at_edge=tuple(
            name
            for name, domain in searched.ranges().items()
            if best and not isinstance(domain, Choice) and not EDGE < share_of(domain, best.parameters[name]) < 1 - EDGE
        ),
        importance=_importance(searched, candidate_trials) if importance else (),
    )


def _importance(searched: SearchedCandidate, trials: Sequence[TrialRow]) -> tuple[Importance, ...]:
    if len(searched.space) < 2 or not any(trial.objective is not None for trial in trials):
        return ()
    tried = [
        (trial.parameters, LOSS_IF_LOST if trial.objective is None else trial.objective)
        for trial in trials
        if trial.verdict is not None and trial.parameters
    ]
    from orchestrator.sweeps.importance import importances

    shares = importances(searched, tried)
    return tuple(Importance(parameter=name, share=share) for name, share in shares.items())


def _rank(finding: SweepFinding) -> float:
    return math.inf if finding.best is None or finding.best.objective is None else finding.best.objective


def _notes(
    spec: SweepSpec, experiment: ExperimentRecord, trials: Sequence[TrialRow], findings: Sequence[SweepFinding]
) -> Iterator[str]:
    is_complete, planned = experiment.counts.done(), pluralize(spec.run_count(), "trial")
    open_trials = sum(trial.status not in TERMINAL for trial in trials)
    if not is_complete:
        waiting = spec.run_count() - len(trials) + open_trials
        have = "has" if waiting == 1 else "have"
        yield f"{waiting} of {planned} {have} not ended: everything here may still change."
    elif len(trials) < spec.run_count():
        yield f"The sweep ended after {len(trials)} of {planned}."
    for status in (RunStatus.FAILED, RunStatus.CANCELLED):
        if count := sum(trial.status is status for trial in trials):
            yield f"{pluralize(count, 'trial')} {status} and without a result."
    if is_complete and all(finding.best is None for finding in findings):
        yield "No trial ran its whole budget and learned: there is nothing to choose from."
    stopped = sum(finding.stopped_early for finding in findings)
    if stopped:
        trials_were = f"{pluralize(len(trials), 'trial')} {'was' if stopped == 1 else 'were'}"
        yield f"{stopped} of {trials_were} stopped early; only those that ran the whole budget rank."
    for finding in findings:
        if finding.at_edge:
            names = ", ".join(finding.at_edge)
            yield f"{finding.title}: the best {names} lies at an end of its range, a better one may lie outside."
    if any(finding.best for finding in findings):
        yield (
            f"All trials have seed {spec.seed}, and the best of many is flattered by it: compare the best ones over "
            f"fresh seeds (adapm-bench clone {experiment.id} --more-seeds 3)."
        )
