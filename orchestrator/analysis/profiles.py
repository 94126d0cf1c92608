"""Performance profiles: several comparisons become one score for each candidate (AlgoPerf, arXiv 2306.07179).

    comparisons ─► one target each, which all reach who are not shown to be worse than the best ─► time of each run to
      it ─► those of one workload together, the median over them ─► ratio to the fastest
      ─► share of workloads within tau times the fastest ─► integrated over tau in [1, 4]

A score of 1 is the fastest on every workload; 0 reaches no target in four times the fastest one's time. Which candidate
is the baseline changes no score.
"""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.candidates import loss_of, summaries
from orchestrator.analysis.comparison import (
    Curves,
    compare,
    comparison_design,
    concluded_rows,
    device_hours_until,
    rank_candidates,
    tokens_per_step,
)
from orchestrator.analysis.targets import LARGEST_TAU, first_reached, median_time, profile_scores
from orchestrator.design import ComparisonDesign
from orchestrator.records import CandidateRow, Comparison, Conclusion, ExperimentRecord, RunRecord
from worker.records.result import Record, Verdict
from worker.spec.run import Evaluation, Execution
from worker.words import pluralize


class WorkloadTime(Record):
    """The time of a candidate on one workload, median over seeds; null if half of them never reached the target."""

    experiment_id: str
    """The first of its experiments."""
    name: str
    experiments: tuple[str, ...] = ()
    """All experiments that trained this workload; of several, the times are the median."""
    targets: tuple[float, ...] = ()
    """The loss that was to be reached, in each of its comparisons."""
    tokens: float | None
    device_hours: float | None


class ProfileRow(Record):
    """A candidate over all workloads."""

    candidate: str
    title: str
    is_baseline: bool
    score_tokens: float
    """The score of the profile over tokens to target: 0 to 1. It does not depend on the machine."""
    score_device_hours: float
    """The score of the profile over device-hours to target: it depends on the machine, so compare it on one kind of
    device only."""
    times: tuple[WorkloadTime, ...]
    behind: int = 0
    """Workloads on which it is shown to be worse than the best candidate there, or unstable."""
    runs: int = 0
    """The runs on the seeds that all candidates have."""
    lost_runs: int = 0
    """The lost ones of `runs`: they reach no target."""


class ProfileReport(Record):
    """Candidates over several workloads, the best first."""

    experiments: tuple[str, ...]
    workloads: int
    """Fewer than experiments, where some of these train the same."""
    largest_tau: float
    rows: tuple[ProfileRow, ...]
    notes: tuple[str, ...]


AS_USUAL: Final[Mapping[str, Any]] = {"execution": Execution(), "evaluation": Evaluation(), "probes": None}
"""The differences that two experiments of one workload may have."""

Measured = tuple[ExperimentRecord, Sequence[RunRecord], Curves]
"""A comparison, all of its runs, and the curves of those that `compared_runs` names."""


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """A judged run: how long it took to the target, infinite where it never got there."""

    tokens: float = math.inf
    device_hours: float = math.inf
    is_lost: bool = False


@dataclass(frozen=True, kw_only=True)
class _Trials:
    """The judged runs of a comparison, and the loss that they were to reach: minus infinity where none is stable."""

    target: float
    by_name: dict[str, list[_Trial]]
    behind: frozenset[str]
    """The candidates that are shown to be worse than the best one, or unstable."""


def performance_profiles(measured: Sequence[Measured]) -> ProfileReport:
    """Return the profile of every candidate; a pure function. Each workload counts once, however many experiments
    measured it, and a candidate that was not trained on one never gets there."""
    comparisons = [compare(experiment, runs) for experiment, runs, _ in measured]
    rows_by_name = {row.candidate: row for comparison in reversed(comparisons) for row in comparison.rows}
    groups: dict[str, list[tuple[Comparison, _Trials]]] = {}
    left_out = []
    for measurement, comparison in zip(measured, comparisons, strict=True):
        if len((judged := _trials(measurement)).by_name) < 2:
            left_out.append(comparison.name)
            continue
        workload = measurement[0].spec.workload.model_copy(update=AS_USUAL)
        groups.setdefault(workload.content_hash(), []).append((comparison, judged))
    trials = {
        name: [[trial for _, judged in group for trial in judged.by_name.get(name, ())] for group in groups.values()]
        for name in sorted(rows_by_name)
    }
    times = {
        name: [
            WorkloadTime(
                experiment_id=group[0][0].experiment_id,
                name=group[0][0].name,
                experiments=tuple(dict.fromkeys(comparison.experiment_id for comparison, _ in group)),
                targets=tuple(judged.target for _, judged in group if math.isfinite(judged.target)),
                tokens=median_time([trial.tokens for trial in own_trials]),
                device_hours=median_time([trial.device_hours for trial in own_trials]),
            )
            for group, own_trials in zip(groups.values(), trials[name], strict=True)
        ]
        for name in trials
    }
    worse_names = [frozenset[str]().union(*(judged.behind for _, judged in group)) for group in groups.values()]
    rows = [
        row.model_copy(update={"runs": len(own_trials), "lost_runs": sum(trial.is_lost for trial in own_trials)})
        for row in _ranked_rows([rows_by_name[name] for name in trials], times, worse_names)
        for own_trials in [[trial for of_group in trials[row.candidate] for trial in of_group]]
    ]
    notes = _profile_notes([[comparison for comparison, _ in group] for group in groups.values()])
    lost = [
        f"{row.title}: {row.lost_runs} of {row.runs} runs were lost; these count as runs that never got there."
        for row in rows
        if row.lost_runs
    ]
    untrained = [
        f"{row.title} was not trained on {pluralize(count, 'workload')}, and counts as not there."
        for row in rows
        if (count := sum(not own_trials for own_trials in trials[row.candidate]))
    ]
    missing = [
        f"{name} is left out: fewer than two candidates have runs there that ended with a curve, on seeds of both."
        for name in left_out
    ]
    return ProfileReport(
        experiments=tuple(comparison.experiment_id for comparison in comparisons),
        workloads=len(groups),
        largest_tau=LARGEST_TAU,
        rows=tuple(rows),
        notes=(*missing, *untrained, *notes, *lost),
    )


def _ranked_rows(
    rows: Iterable[CandidateRow], times: Mapping[str, Sequence[WorkloadTime]], worse_names: Iterable[Collection[str]]
) -> list[ProfileRow]:
    """Return the candidates of these leaderboard rows, the best first, by their times to target on every workload.
    `worse_names`: for each workload, the candidates shown to be worse than the best one."""
    worse = Counter(name for names in worse_names for name in names)
    tokens = profile_scores({name: [time.tokens for time in workload_times] for name, workload_times in times.items()})
    hours = profile_scores(
        {name: [time.device_hours for time in workload_times] for name, workload_times in times.items()}
    )
    profile_rows = [
        ProfileRow(
            candidate=row.candidate,
            title=row.title,
            is_baseline=row.is_baseline,
            score_tokens=tokens[row.candidate],
            score_device_hours=hours[row.candidate],
            times=tuple(times[row.candidate]),
            behind=worse[row.candidate],
        )
        for row in rows
    ]
    return sorted(profile_rows, key=lambda row: -row.score_tokens)


def _trials(measured: Measured) -> _Trials:
    """Return the judged runs of each candidate that has some, seed by seed, on the seeds that all of these have: more
    would be an advantage.

    The target is one that everybody reaches who is not shown to be worse than the best: of these the highest median of
    the final losses, of two in the middle the higher one. So no score separates what the verdicts do not. Who ends
    higher by no more than the margin of equivalence gets there too."""
    experiment, runs, curves = measured
    design = comparison_design(experiment)
    ended = {
        summary.candidate.name: {
            run.seed: run
            for run in summary.compared_records()
            if run.result is not None
            and ((run.id in curves and len(curves[run.id].steps)) or run.result.verdict is not Verdict.CONVERGED)
        }
        for summary in summaries(design, runs)
    }
    ended = {name: runs_by_seed for name, runs_by_seed in ended.items() if runs_by_seed}
    seeds = sorted(set.intersection(*(set(seed_runs) for seed_runs in ended.values()))) if ended else []
    stable = {
        name: {seed: loss for seed in seeds if (loss := loss_of(ended[name][seed])) is not None} for name in ended
    }
    worse_names = _find_worse_than_best(design, runs)
    medians = [
        statistics.median_high(losses.values()) for name, losses in stable.items() if losses and name not in worse_names
    ]
    target = max(medians, default=-math.inf) + (design.margin or 0.0)

    def trial(name: str, seed: int) -> _Trial:
        run = ended[name][seed]
        if seed not in stable[name]:
            return _Trial(is_lost=True)
        curve = curves[run.id]
        steps = first_reached(curve.steps, curve.losses, target)
        if steps is None:
            return _Trial()
        return _Trial(tokens=steps * tokens_per_step(run), device_hours=device_hours_until(run, steps))

    by_name = {name: [trial(name, seed) for seed in seeds] for name in ended if seeds}
    return _Trials(target=target, by_name=by_name, behind=worse_names)


def _find_worse_than_best(design: ComparisonDesign, runs: Iterable[RunRecord]) -> frozenset[str]:
    """Return the candidates that are worse than the best one, or unstable beside it, whichever is the baseline. The
    best is that with the lowest loss of those that lost the fewest runs."""
    candidates = summaries(design, runs)
    losses = {
        summary.candidate.name: (len(summary.compared_runs.lost), loss.mean)
        for summary in candidates
        if (loss := summary.compared_runs.val_loss())
    }
    if not losses:
        return frozenset()
    design = design.hold_against(min(losses, key=lambda name: (losses[name], name)))
    rows = concluded_rows(design, rank_candidates(design, candidates))
    return frozenset(row.candidate for row in rows if row.conclusion in (Conclusion.WORSE, Conclusion.UNSTABLE))


def _profile_notes(groups: Sequence[Sequence[Comparison]]) -> tuple[str, ...]:
    """Return notes on the fairness of the comparisons, those of one workload together."""
    comparisons = [comparison for group in groups for comparison in group]
    notes = [
        "Target of each workload: the highest median final loss of the candidates that are not shown to be worse than "
        "the best one, plus the margin of equivalence."
    ]
    if len(groups) < 3:
        workloads = pluralize(len(groups), "workload")
        notes.insert(0, f"{workloads}: a profile over so few says little beyond their own tables.")
    for group in groups:
        if len(group) > 1:
            names = ", ".join(comparison.name for comparison in group)
            notes.append(f"{len(group)} experiments train one workload and count as one, at their median: {names}.")
    if len({comparison.device for comparison in comparisons}) > 1:
        notes.append("Measured on different devices: compare the tokens, not the device-hours.")
    if unfinished := [comparison.name for comparison in comparisons if not comparison.complete]:
        notes.append(f"Not ended yet: {', '.join(unfinished)}.")
    return tuple(notes)
