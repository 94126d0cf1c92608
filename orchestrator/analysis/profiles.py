"""Performance profiles: several comparisons become one score for each candidate (AlgoPerf, arXiv 2306.07179).

    comparisons ─► one target each, the best candidate's loss and the margin ─► time of each run to it ─► those of one
      workload together, the median over them ─► ratio to the fastest
      ─► share of workloads within tau times the fastest ─► integrated over tau in [1, 4]

A score of 1 is the fastest on every workload; 0 reaches no target in four times the fastest one's time. Which candidate
is the baseline changes no score.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from orchestrator.analysis.candidates import loss_of, summaries
from orchestrator.analysis.comparison import Curves, compare, comparison_spec, device_hours_until, tokens_per_step
from orchestrator.analysis.targets import LARGEST_TAU, first_reached, median_time, profile_scores
from orchestrator.records import CandidateRow, Comparison, ExperimentRecord, RunRecord
from worker.records.result import Record, Verdict
from worker.spec.run import Evaluation, Execution, Workload
from worker.words import pluralize


class ProfileRule(StrEnum):
    """Whose rule scores are taken by: the bench's own, exact and paired by seed, or AlgoPerf's scorer's."""

    BENCH = "bench"
    ALGOPERF = "algoperf"


class WorkloadTime(Record):
    """How long a candidate took on one workload, median over seeds; null where half of them never got there."""

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
    """One candidate over all workloads."""

    candidate: str
    title: str
    is_baseline: bool
    score_tokens: float
    """Of the profile over tokens to target: 0 to 1. It does not depend on the machine."""
    score_device_hours: float
    """Of the profile over device-hours to target: it does, and is fair on one kind of device only."""
    times: tuple[WorkloadTime, ...]
    runs: int = 0
    """On the seeds that all candidates have."""
    lost_runs: int = 0
    """Of `runs`, those that were lost: they reach no target."""


class ProfileReport(Record):
    """Candidates over several workloads, the best first."""

    rule: ProfileRule = ProfileRule.BENCH
    """By which the times were taken and the profiles integrated."""
    experiments: tuple[str, ...]
    workloads: int
    """Fewer than experiments, where some of these train the same."""
    largest_tau: float
    rows: tuple[ProfileRow, ...]
    notes: tuple[str, ...]


AS_USUAL: Final[Mapping[str, Any]] = {"execution": Execution(), "evaluation": Evaluation(), "probes": None}
"""What two experiments of one workload may do differently."""

NO_TEST = "A score describes these runs alone, without the noise of the seeds: the tables' verdicts include that."

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


def performance_profiles(measured: Sequence[Measured]) -> ProfileReport:
    """The profile of every candidate that all comparisons have; a pure function. Each workload counts once, however
    many experiments measured it."""
    comparisons = [compare(experiment, runs) for experiment, runs, _ in measured]
    tables = [{row.candidate: row for row in each.rows} for each in comparisons]
    common = sorted(name for name in tables[0] if all(name in table for table in tables))
    groups: dict[str, list[tuple[Comparison, _Trials]]] = {}
    left_out = []
    for each, comparison in zip(measured, comparisons, strict=True):
        of = _trials(each, common)
        if not all(of.by_name.values()):
            left_out.append(comparison.name)
            continue
        groups.setdefault(trained_workload(comparison_spec(each[0]).workload), []).append((comparison, of))
    trials = {
        name: [[trial for _, of in group for trial in of.by_name[name]] for group in groups.values()] for name in common
    }
    times = {
        name: [
            WorkloadTime(
                experiment_id=group[0][0].experiment_id,
                name=group[0][0].name,
                experiments=tuple(dict.fromkeys(each.experiment_id for each, _ in group)),
                targets=tuple(of.target for _, of in group if math.isfinite(of.target)),
                tokens=median_time([trial.tokens for trial in own]),
                device_hours=median_time([trial.device_hours for trial in own]),
            )
            for group, own in zip(groups.values(), trials[name], strict=True)
        ]
        for name in common
    }
    rows = [
        row.model_copy(update={"runs": len(own), "lost_runs": sum(trial.is_lost for trial in own)})
        for row in ranked_rows([tables[0][name] for name in common], times, profile_scores)
        for own in [[trial for of_group in trials[row.candidate] for trial in of_group]]
    ]
    found = profile_notes(
        "Target of each workload: the lowest median final loss of a stable candidate, plus the margin of equivalence. "
        "It is the same for all candidates, whichever is the baseline.",
        [[comparison for comparison, _ in group] for group in groups.values()],
        dropped=len(set[str]().union(*tables)) - len(common),
        is_baselines=False,
    )
    lost = [
        f"{row.title}: {row.lost_runs} of {row.runs} runs were lost; these count as runs that never got there."
        for row in rows
        if row.lost_runs
    ]
    missing = [
        f"{name} is left out: a candidate has no run there that ended with a curve, on a seed that all have."
        for name in left_out
    ]
    return ProfileReport(
        experiments=tuple(each.experiment_id for each in comparisons),
        workloads=len(groups),
        largest_tau=LARGEST_TAU,
        rows=tuple(rows),
        notes=(*missing, *found, *lost, NO_TEST),
    )


def ranked_rows(
    rows: Iterable[CandidateRow],
    times: Mapping[str, Sequence[WorkloadTime]],
    scores: Callable[[Mapping[str, Sequence[float | None]]], Mapping[str, float]],
) -> list[ProfileRow]:
    """The candidates of these rows of leaderboards, the best first, by their times to target on every workload."""
    tokens = scores({name: [each.tokens for each in mine] for name, mine in times.items()})
    hours = scores({name: [each.device_hours for each in mine] for name, mine in times.items()})
    found = [
        ProfileRow(
            candidate=row.candidate,
            title=row.title,
            is_baseline=row.is_baseline,
            score_tokens=tokens[row.candidate],
            score_device_hours=hours[row.candidate],
            times=tuple(times[row.candidate]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda row: -row.score_tokens)


def _trials(measured: Measured, names: Sequence[str]) -> _Trials:
    """The judged runs of each candidate, seed by seed, on the seeds that all of them have: more would be an advantage.

    The target is that of the best candidate, as AlgoPerf's is: of those that lost the fewest runs, the lowest median of
    the final losses, of two in the middle the higher one. Who ends higher by no more than the margin of equivalence
    gets there too."""
    experiment, runs, curves = measured
    spec = comparison_spec(experiment)
    found = {each.candidate.name(): each for each in summaries(spec, runs)}
    ended = {
        name: {
            run.seed: run
            for run in found[name].best.runs
            if run.result is not None and (_has_curve(run, curves) or run.result.verdict is not Verdict.CONVERGED)
        }
        for name in names
    }
    seeds = sorted(set.intersection(*(set(each) for each in ended.values()))) if ended else []
    stable = {
        name: {seed: loss for seed in seeds if (loss := loss_of(ended[name][seed])) is not None} for name in names
    }
    most = max(map(len, stable.values()), default=0)
    medians = [statistics.median_high(of.values()) for of in stable.values() if of and len(of) == most]
    target = min(medians, default=-math.inf) + (spec.equivalence() or 0.0)

    def trial(name: str, seed: int) -> _Trial:
        run = ended[name][seed]
        if seed not in stable[name]:
            return _Trial(is_lost=True)
        curve = curves[run.id]
        steps = first_reached(curve.steps, curve.losses, target)
        if steps is None:
            return _Trial()
        return _Trial(tokens=steps * tokens_per_step(run), device_hours=device_hours_until(run, steps))

    return _Trials(target=target, by_name={name: [trial(name, seed) for seed in seeds] for name in names})


def _has_curve(run: RunRecord, curves: Curves) -> bool:
    return run.id in curves and len(curves[run.id].steps) > 0


def trained_workload(workload: Workload) -> str:
    """Equal for what is one workload: how it is computed, evaluated and observed makes no other one of it."""
    return workload.model_copy(update=AS_USUAL).content_hash()


def profile_notes(
    rule: str, groups: Sequence[Sequence[Comparison]], dropped: int, *, is_baselines: bool = True
) -> tuple[str, ...]:
    """What a fair reader must know: the rule, whether its targets are the baselines', and the comparisons, those of one
    workload together."""
    comparisons = [each for group in groups for each in group]
    found = [rule]
    if len(groups) < 3:
        workloads = pluralize(len(groups), "workload")
        found.insert(0, f"{workloads}: a profile over so few says little beyond their own tables.")
    for group in groups:
        if len(group) > 1:
            names = ", ".join(each.name for each in group)
            found.append(f"{len(group)} experiments train one workload and count as one, at their median: {names}.")
    if dropped:
        found.append(f"{pluralize(dropped, 'candidate is', 'candidates are')} left out: not in every comparison.")
    if is_baselines and len({each.baseline for each in comparisons}) > 1:
        found.append("The comparisons have different baselines, so their targets are not equally hard.")
    if len({each.device for each in comparisons}) > 1:
        found.append("Measured on different devices: compare the tokens, not the device-hours.")
    if unfinished := [each.name for each in comparisons if not each.complete]:
        found.append(f"Not ended yet: {', '.join(unfinished)}.")
    return tuple(found)
