"""Scores by the rules of other benchmarks: what a submission there would be told about the runs that are here.

    AlgoPerf                first evaluation at the target, the fastest trial of each study ─► median over studies
                            ─► ratio to the fastest submission ─► profile at 100 values of tau in [1, 4] ─► its mean
    modded-nanogpt track 3  (target - mean loss) * sqrt(runs) >= margin, over all runs that were made

Pure functions. AlgoPerf: arXiv 2306.07179, and the scorer of its leaderboard (github.com/mlcommons/
submissions_algorithms, `scoring/`), whose published scores the tests reproduce from its published logs. Track 3: the
third rule of github.com/KellerJordan/modded-nanogpt, `records/track_3_optimization`.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from orchestrator.analysis.candidates import summaries
from orchestrator.analysis.comparison import Curves, comparison_spec, device_hours_until, tokens_per_step
from orchestrator.analysis.profiles import (
    ProfileReport,
    ProfileRule,
    WorkloadTime,
    profile_notes,
    ranked_rows,
    trained_workload,
)
from orchestrator.analysis.statistics import median, t_quantile
from orchestrator.analysis.targets import LARGEST_TAU, median_time, profile, time_ratios
from orchestrator.external_runs import ExternalJudgement, ExternalRun, ExternalState
from orchestrator.records import SIGNIFICANCE, Comparison, ExperimentRecord, RunRecord
from worker.records.result import LARGEST_LOSS, Record, StoredText
from worker.spec.run import Workload
from worker.words import pluralize

PROFILE_POINTS = 100
"""Values of tau at which AlgoPerf's scorer looks at a profile; between them it draws straight lines. The exact integral
of its own leaderboard is lower by 0.0005 and 0.0010."""
TRACK_3_TARGET: Final = 3.28
"""Validation loss on FineWeb, in nats."""
TRACK_3_MARGIN: Final = 0.004
"""What a single run has to be below the target: a one-sided z-test at p < 0.001, with the standard deviation between
seeds taken as 0.0013."""
TRACK_3_LEVEL = 0.001
"""The p-value of its test, one-sided."""
SIGMAS = 3.09
"""Of the normal at that level."""


# AlgoPerf

Trials = Sequence[float | None]
"""When each trial of a study reached the target; None for one that never did."""


def first_evaluation(positions: Sequence[float], losses: Sequence[float], target: float) -> float | None:
    """The position of the first evaluation at or below the target, None without one. AlgoPerf draws no line between
    two evaluations: who is evaluated seldom is late."""
    return next((at for at, loss in zip(positions, losses, strict=True) if loss <= target), None)


def time_to_target(studies: Iterable[Trials]) -> float | None:
    """The median over the studies of their fastest trial; a study in which none got there is later than all others,
    and None is the answer where that one is the median."""
    return median_time([min((time for time in trials if time is not None), default=math.inf) for trials in studies])


def algoperf_scores(times: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
    """The score of each submission from its time to target on every workload, in the same order for all; 0 to 1.

    A workload that nobody trained to its target counts for nobody, and stays in the denominator. More than four times
    the fastest is as good as never.
    """
    taus = np.linspace(1.0, LARGEST_TAU, PROFILE_POINTS)
    heights = {name: [profile(ratios, tau) for tau in taus] for name, ratios in time_ratios(times).items()}
    return {name: float(np.trapezoid(each, taus)) / (LARGEST_TAU - 1) for name, each in heights.items()}


@dataclass(frozen=True, kw_only=True)
class MeasuredComparison:
    """A comparison with what AlgoPerf's rule looks at beside its leaderboard."""

    workload: Workload
    comparison: Comparison
    runs: Sequence[RunRecord]
    curves: Curves
    """Of all runs that ended."""
    behind: frozenset[str] = frozenset()
    """Who is shown to be worse than the best candidate (`profiles.shown_behind`)."""


def algoperf_profile(measured: Sequence[MeasuredComparison], *, everybody: bool = False) -> ProfileReport:
    """The scores of the candidates that all comparisons have; of `everybody`, where one that a workload was not trained
    with never reaches its target.

    A study is a seed that judges, its trials are the rates trained on it. The target of a workload is one number: the
    median over the seeds of the loss at which the tuned baseline ended. Several comparisons of one workload are more
    studies of it.
    """
    groups: dict[str, list[MeasuredComparison]] = {}
    for each in measured:
        groups.setdefault(trained_workload(each.workload), []).append(each)
    tables = [{row.candidate for row in each.comparison.rows} for each in measured]
    rows_by_name = {row.candidate: row for each in reversed(measured) for row in each.comparison.rows}
    known = rows_by_name if everybody else [row.candidate for row in measured[0].comparison.rows]
    common = [rows_by_name[name] for name in known if everybody or all(name in table for table in tables)]
    times = {row.candidate: [_workload_time(group, row.candidate) for group in groups.values()] for row in common}
    return ProfileReport(
        rule=ProfileRule.ALGOPERF,
        experiments=tuple(each.comparison.experiment_id for each in measured),
        workloads=len(groups),
        largest_tau=LARGEST_TAU,
        rows=tuple(
            ranked_rows(
                common,
                times,
                algoperf_scores,
                [frozenset[str]().union(*(each.behind for each in group)) for group in groups.values()],
            )
        ),
        notes=profile_notes(
            "AlgoPerf's rule: the first evaluation at the target, of the fastest trial of each study, the median over "
            "studies. A study is a seed, its trials are the rates trained on it (AlgoPerf asks for 3 studies of 5); "
            "the target of a workload is the median final loss of its tuned baseline, one number for all seeds.",
            [[each.comparison for each in group] for group in groups.values()],
            dropped=len(set[str]().union(*tables)) - len(common),
        ),
    )


def _workload_time(group: Sequence[MeasuredComparison], candidate: str) -> WorkloadTime:
    studies = [study for each in group for study in _studies(each, candidate)]
    return WorkloadTime(
        experiment_id=group[0].comparison.experiment_id,
        name=group[0].comparison.name,
        experiments=tuple(dict.fromkeys(each.comparison.experiment_id for each in group)),
        targets=tuple(target for each in group if (target := _target(each)) is not None),
        tokens=time_to_target([[time and time[0] for time in study] for study in studies]),
        device_hours=time_to_target([[time and time[1] for time in study] for study in studies]),
    )


def _studies(measured: MeasuredComparison, candidate: str) -> list[list[tuple[float, float] | None]]:
    """Tokens and device-hours until the target, of each trial of each judging seed."""
    comparison, target = measured.comparison, _target(measured)
    found: dict[int, list[tuple[float, float] | None]] = {}
    for run in measured.runs:
        if run.candidate != candidate or run.seed in comparison.tuning_seeds or run.result is None:
            continue
        curve = measured.curves.get(run.id)
        steps = None if curve is None or target is None else first_evaluation(curve.steps, curve.losses, target)
        time = None if steps is None else (steps * tokens_per_step(run), device_hours_until(run, steps))
        found.setdefault(run.seed, []).append(time)
    return list(found.values())


def _target(measured: MeasuredComparison) -> float | None:
    rate = next(row.best() for row in measured.comparison.rows if row.is_baseline)
    judged = set(rate.run_ids) if rate else set()
    return median([run.result.final_val_loss for run in measured.runs if run.id in judged and run.result is not None])


# modded-nanogpt, track 3


class TargetTestChoice(Record):
    """Which target, and how surely."""

    target: Annotated[float, Field(ge=-1e6, le=1e6)] = Field(
        default=TRACK_3_TARGET, description="The loss that the mean of the runs has to be below."
    )
    margin: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=TRACK_3_MARGIN,
        description="How far below it a single run has to be: 3.09 times the standard deviation between seeds of this "
        "workload. The default is track 3's.",
    )


class ExternalTargetTestChoice(TargetTestChoice):
    """The same of external runs, whose metric and workload may have to be chosen first."""

    metric: Annotated[StoredText, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="The loss. Default: the validation loss."
    )
    workload: Annotated[StoredText, Field(max_length=128)] | None = Field(
        default=None, description="Where runs have several; empty for none."
    )


class TargetTestRow(Record):
    """What a candidate's runs show about a target."""

    candidate: str
    lr: float | None
    runs: int
    """All of the candidate at its rate, those without a finite loss as well."""
    mean_loss: float | None
    """Null where a run has no finite loss, or none has ended."""
    score: float | None
    """(target - mean loss) * sqrt(runs)."""
    is_shown: bool
    """Whether the score is the margin or more, and the runs differ by no more than the margin takes seeds to."""
    runs_needed: int | None
    """At this mean; null where the mean is not below the target."""
    verdict: str


class TargetTest(Record):
    """Whose mean loss is shown to be below a target, by the rule of modded-nanogpt's track 3."""

    experiment_id: str
    name: str
    target: float
    margin: float
    rows: tuple[TargetTestRow, ...]
    """In the order of the leaderboard."""
    notes: tuple[str, ...]


def target_score(mean_loss: float, runs: int, target: float = TRACK_3_TARGET) -> float:
    """What track 3 holds against its margin."""
    return (target - mean_loss) * math.sqrt(runs)


def target_test_row(
    candidate: str, lr: float | None, losses: Sequence[float | None], choice: TargetTestChoice, *, without: int = 0
) -> TargetTestRow:
    """Of the final losses of all runs; None for a run without a finite one, which no mean may leave out. Nothing is
    shown where runs, so many, are `without` a result: which ones failed is no matter of chance."""
    finite = [loss for loss in losses if loss is not None and abs(loss) <= LARGEST_LOSS]
    mean = statistics.fmean(finite) if finite and len(finite) == len(losses) else None
    score = None if mean is None else target_score(mean, len(finite), choice.target)
    needed = None if mean is None or mean >= choice.target else _runs_needed(mean, choice)
    noisy = _noise_beyond(finite, choice.margin)
    is_shown = score is not None and score >= choice.margin and not without and noisy is None
    if not losses:
        said = "Not shown: no run has ended."
    elif without:
        said = f"Not shown: {pluralize(without, 'run')} at this rate {'has' if without == 1 else 'have'} no result."
    elif mean is None or score is None:
        said = f"Not shown: {len(losses) - len(finite)} of {pluralize(len(losses), 'run')} ended without a finite loss."
    elif is_shown:
        said = f"Shown: {mean:.4f} over {pluralize(len(losses), 'run')}, {score:.4f} is {choice.margin:g} or more."
    elif mean >= choice.target:
        said = f"Not shown: {mean:.4f} over {pluralize(len(losses), 'run')} is not below {choice.target:g}."
    elif noisy is not None:
        said = (
            f"Not shown: these {len(losses)} runs differ by a standard deviation of {noisy:.2g}, and the rule takes "
            f"{choice.margin / SIGMAS:.2g}; ask again with a noise margin of "
            f"{t_quantile(len(finite) - 1, 1 - TRACK_3_LEVEL) * noisy:.2g}, which is their own by Student's t."
        )
    else:
        takes = (
            f"at this mean it takes {pluralize(needed, 'run')}" if needed else "no number of runs at this mean suffices"
        )
        over = pluralize(len(losses), "run")
        said = f"Not shown: {mean:.4f} over {over}, {score:.4f} is less than {choice.margin:g}; {takes}."
    return TargetTestRow(
        candidate=candidate,
        lr=lr,
        runs=len(losses),
        mean_loss=mean,
        score=score,
        is_shown=is_shown,
        runs_needed=needed,
        verdict=said,
    )


def _noise_beyond(losses: Sequence[float], margin: float) -> float | None:
    """The standard deviation of the runs, where it is shown (at 5 %, by chi-square) to be larger than the one that a
    margin is made of: the rule's p-value is none then."""
    from scipy.special import chdtrc  # a fifth of a second, of which most requests need nothing

    if len(losses) < 2:
        return None
    spread, degrees = statistics.stdev(losses), len(losses) - 1
    ratio = spread * SIGMAS / margin
    return spread if chdtrc(degrees, degrees * ratio * ratio) < SIGNIFICANCE else None


def _runs_needed(mean: float, choice: TargetTestChoice) -> int | None:
    """The least number that the rule accepts at this mean; None where it is beyond all numbers."""
    ratio = choice.margin / (choice.target - mean)
    squared = ratio * ratio  # a power would raise where this is infinite
    if not squared < 2**53:
        return None
    least = max(1, math.floor(squared))
    return least if target_score(mean, least, choice.target) >= choice.margin else least + 1


def target_test(experiment: ExperimentRecord, runs: Iterable[RunRecord], choice: TargetTestChoice) -> TargetTest:
    """Of every candidate of a comparison at its best rate, over all of these runs that ended. Raises `ConflictError`
    for a sweep."""
    spec = comparison_spec(experiment)
    best = {each.candidate.name(): each.best for each in summaries(spec, runs)}
    rows = [
        target_test_row(
            name,
            rate.lr,
            [run.result.final_val_loss for run in rate.runs if run.result is not None],
            choice,
            without=sum(run.result is None for run in rate.runs),
        )
        for name, rate in best.items()
    ]
    without = sum(run.result is None for rate in best.values() for run in rate.runs)
    chosen = any(len(each.learning_rates) > 1 for each in spec.candidates)
    return TargetTest(
        experiment_id=experiment.id,
        name=experiment.name,
        target=choice.target,
        margin=choice.margin,
        rows=_sort_by_loss(rows),
        notes=tuple(_target_test_notes(choice, chosen=chosen and spec.tuning is None, without=without)),
    )


def external_target_test(
    judgement: ExternalJudgement, runs: Iterable[ExternalRun], choice: TargetTestChoice
) -> TargetTest:
    """The same of external runs: those that are judged."""
    told = tuple(runs)
    losses = {run.id: run.metrics[judgement.metric].last for run in told if judgement.metric in run.metrics}
    failed = Counter((run.candidate, run.lr) for run in told if run.state is ExternalState.FAILED)
    rows = [
        target_test_row(
            row.candidate,
            row.lr,
            [losses[id] for rate in row.learning_rates if rate.lr == row.lr for id in rate.run_ids],
            choice,
            without=failed[row.candidate, row.lr],
        )
        for row in judgement.rows
    ]
    chosen = any(len(row.learning_rates) > 1 for row in judgement.rows) and not judgement.tuning_seeds
    return TargetTest(
        experiment_id=judgement.experiment_id,
        name=judgement.experiment,
        target=choice.target,
        margin=choice.margin,
        rows=_sort_by_loss(rows),
        notes=(
            *_target_test_notes(choice, chosen=chosen, without=0),
            *judgement.concerns,
            f"What is tested is {judgement.metric}, as a loss: less is better.",
            "External runs: logged, not measured by the bench; nobody can check that none was left out.",
        ),
    )


def _sort_by_loss(rows: Iterable[TargetTestRow]) -> tuple[TargetTestRow, ...]:
    return tuple(sorted(rows, key=lambda row: math.inf if row.mean_loss is None else row.mean_loss))


def _target_test_notes(choice: TargetTestChoice, *, chosen: bool, without: int) -> Iterator[str]:
    yield (
        f"Rule of modded-nanogpt's track 3: (target - mean loss) * sqrt(runs) >= {choice.margin:g}, that is p < 0.001 "
        f"where seeds differ by a standard deviation of {choice.margin / SIGMAS:.2g}."
    )
    if chosen:
        yield (
            "The tested seeds chose the learning rate, too, and track 3 accepts no chosen runs: tune on seeds of "
            "their own."
        )
    if without:
        verb = "is" if without == 1 else "are"
        yield f"{pluralize(without, 'run')} without a result, not ended or failed, {verb} left out."
