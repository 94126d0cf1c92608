"""The answer to a comparison: records in, leaderboard out. A pure function; nothing here reads a store.

runs ─► each candidate at its best learning rate (`candidates.py`) ─► differences to the baseline, paired by seed,
     which hold together (`statistics.py`) ─► conclusions ─► time to the baseline's loss ─► Pareto front ─► sentences
     and notes that claim no more
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.candidates import (
    CandidateSummary,
    RateSummary,
    least_level,
    looks_of,
    luck_of_draws,
    spread_of_difference,
    summaries,
)
from orchestrator.analysis.improvement import PairsState, improvement_of
from orchestrator.analysis.sequential import FUTILE, Array, chances_of_verdict
from orchestrator.analysis.stability import instability, spikes
from orchestrator.analysis.statistics import Reach, median, normal_quantile, paired_difference, t_quantile
from orchestrator.analysis.targets import crossing_bounds, first_reached, fronts_shown, pareto_front
from orchestrator.analysis.verdicts import conclusion, notes, verdict
from orchestrator.errors import ConflictError
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import SeedCoverage
from orchestrator.kinds.tuning_search import Setting
from orchestrator.records import (
    SIGNIFICANCE,
    TENSORS,
    CandidatePair,
    CandidateRow,
    Comparison,
    Conclusion,
    Difference,
    ExperimentRecord,
    Instability,
    LearningRateRow,
    OpenInterval,
    RunRecord,
    SeedsStatus,
    SeedsUsed,
    TimeToTarget,
)
from worker.records.result import Result, Verdict
from worker.spec.run import Workload

SECONDS_PER_HOUR = 3600.0
EVALUATION_ERROR = 0.5
"""Standard error of a difference of two losses by the validation text, in nats, times the root of its tokens. AdamW,
AdaPM and AdaPM-mini have 0.29 to 0.59 on Python text after 150 steps; optimizers that differ by 0.3 nats and more have
1.2 to 1.5 (`python -m benchmarks.evaluation_error`)."""


@dataclass(frozen=True, kw_only=True)
class ValidationCurve:
    """The validation losses of one run, ascending by step."""

    steps: tuple[float, ...]
    losses: tuple[float, ...]


Curves = Mapping[str, ValidationCurve]
"""By run id. A run without one has no time to target."""


def comparison_spec(experiment: ExperimentRecord) -> ComparisonSpec:
    """The comparison as which an experiment is judged. Raises `ConflictError` for a sweep."""
    if (spec := experiment.spec.comparison()) is not None:
        return spec
    raise ConflictError(
        f"experiment {experiment.id} is a sweep: its trials have one seed and say nothing of chance; "
        f"`adapm-bench sweep show {experiment.id}` tells what was found, `adapm-bench sweep compare {experiment.id}` "
        "compares the best of it over fresh seeds"
    )


def compare(experiment: ExperimentRecord, runs: Iterable[RunRecord], curves: Curves | None = None) -> Comparison:
    """The leaderboard of a comparison from all of its runs, ended or not; best first, without a finite loss last."""
    runs = tuple(runs)
    spec = comparison_spec(experiment)
    standings = standings_of(spec, summaries(spec, runs))
    found = [each.summary for each in standings]
    baseline = next(each.summary for each in standings if each.is_baseline)
    concluded = concluded_rows(spec, standings)
    baseline_row = next(row for row in concluded if row.is_baseline)
    task = spec.workload.task
    best_tried = {each.candidate.name(): of for each in found if (of := each.judged_instead_of()) is not None}
    overtaken = {each.candidate.name(): lr for each in found if (lr := each.overtaken_by()) is not None}
    rows = tuple(
        row.model_copy(
            update={
                "time_to_target": _time_to_target(spec, row, each, baseline, curves or {}),
                "seeds_used": None if row.is_baseline else _seeds_used(spec, row, each, baseline),
                "verdict": verdict(row, baseline_row, task.loss_unit, spec),
            }
        )
        for each, row in zip(found, concluded, strict=True)
    )
    pairs = _all_pairs(spec, standings, rows) if spec.all_pairs else ()
    rate_is_open = [each.summary.rate_is_open() for each in standings]
    intervals = _intervals(rows, pairs, [each.bounds for each in standings], rate_is_open)
    shown = fronts_shown([each.loss_and_bytes() for each in standings], intervals)
    rows = tuple(row.model_copy(update={"pareto_front_shown": each}) for row, each in zip(rows, shown, strict=True))
    return Comparison(
        experiment_id=experiment.id,
        name=experiment.name,
        complete=all(run.status in TERMINAL for run in runs) and not experiment.counts.growing,
        baseline=spec.baseline_name(),
        device=_device(runs),
        loss_name=task.loss_name,
        loss_unit=task.loss_unit,
        tuning_seeds=spec.tuning.seeds if spec.tuning else (),
        rows=rows,
        pairs=pairs,
        notes=notes(spec, runs, rows, overtaken, best_tried),
    )


def _intervals(
    rows: Sequence[CandidateRow],
    pairs: Sequence[CandidatePair],
    to_baseline: Sequence[tuple[float, float]],
    rate_is_open: Sequence[bool],
) -> dict[tuple[int, int], tuple[float, float]]:
    """Place and place → between which bounds the first one's loss less the second one's lies. All hold at once: bounds
    to the baseline give those of two others, wider than a test of the two would; as if no rate lay at an edge, for
    where the baseline's does that is nothing to the two. Whose own does may be lower by any amount."""
    tested = {(pair.candidate, pair.other): _bounds(pair.difference) for pair in pairs}
    found = {}
    for (one, row), (other, other_row) in itertools.permutations(enumerate(rows), 2):
        (low, high), (other_low, other_high) = to_baseline[one], to_baseline[other]
        bounds = low - other_high, high - other_low
        if (reverse := tested.get((other_row.candidate, row.candidate))) is not None:
            bounds = -reverse[1], -reverse[0]
        low, high = tested.get((row.candidate, other_row.candidate), bounds)
        found[one, other] = -math.inf if rate_is_open[one] else low, math.inf if rate_is_open[other] else high
    return found


def _bounds(difference: Difference | None) -> tuple[float, float]:
    return (-math.inf, math.inf) if difference is None else difference.bounds()


def concluded_rows(spec: ComparisonSpec, standings: Sequence["Standing"]) -> list[CandidateRow]:
    """The rows of a leaderboard with their conclusions, which nothing is said of yet."""
    fronts = pareto_front([each.loss_and_bytes() for each in standings])
    measured = [
        row.model_copy(
            update={
                "is_baseline": standing.is_baseline,
                "edge_of_grid": row.edge_of_grid
                and standing.summary.rates_have_edges()
                and spec.origin_of_rates() is None,
                "difference": standing.difference,
                "instability": standing.instability,
                "selection_gain": standing.summary.selection(),
                "on_pareto_front": front,
            }
        )
        for standing, front in zip(standings, fronts, strict=True)
        for row in [_row(standing.summary)]
    ]
    baseline = next(row for row in measured if row.is_baseline)
    return [row.model_copy(update={"conclusion": conclusion(row, baseline)}) for row in measured]


def compared_runs(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> tuple[str, ...]:
    """The ended runs whose curves `compare` can use: those of each candidate at its best learning rate."""
    found = summaries(comparison_spec(experiment), runs)
    return tuple(run.id for each in found for run in each.best.runs if run.result is not None)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a candidate stands: all that is ranked, drawn and concluded is over these seeds."""

    summary: CandidateSummary
    """Without the seeds on which it or the baseline spiked."""
    is_baseline: bool
    difference: Difference | None
    instability: Instability | None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    """Of the difference, as if no best rate lay at an edge."""
    left_open: tuple[float, float] = (0.0, 0.0)
    """The regrets of candidate and baseline beside an estimate that is sure: no number of judged seeds reaches less."""
    loss: float | None
    """What it is ranked by: the baseline's loss and the difference to it, so that seeds that one of the two lacks
    change no order. Where there is no difference, its own loss."""

    def is_unstable(self) -> bool:
        """Whether the mean is one over survivors."""
        spiked = self.difference is not None and self.difference.spiked > self.difference.baseline_spiked
        return spiked or self.summary.best.coverage is SeedCoverage.UNSTABLE

    def key(self) -> tuple[int, float, int, float]:
        """Sorts the best first; while nothing can be compared, by what tuning found so far."""
        coverage, _ = self.summary.best.key()
        if self.is_unstable():
            coverage = max(coverage, SeedCoverage.UNSTABLE)
        return coverage, self.loss or 0.0, *self.summary.chosen.key()

    def loss_and_bytes(self) -> tuple[float, float] | None:
        """What the Pareto front is drawn over; None for who is unstable."""
        if self.loss is None or self.is_unstable():
            return None
        return self.loss, float(max(result.optimizer_state_bytes for result in self.summary.best.results()))


def standings_of(spec: ComparisonSpec, candidates: Sequence[CandidateSummary]) -> list[Standing]:
    """Every candidate, the best first.

    A run of the baseline spiked where most candidates find it so: what one of them finds may be its own luck.
    """
    baseline = next(each for each in candidates if each.candidate.name() == spec.baseline_name())
    pairs = {each.candidate.name(): _stable_pairs(each, baseline) for each in candidates if each is not baseline}
    votes = Counter(seed for each in pairs.values() for seed in each.baseline_spiked)
    baseline_spiked = frozenset(seed for seed, count in votes.items() if 2 * count > len(pairs))
    baseline_lost = _without_model(baseline) | baseline_spiked
    baseline = baseline.exclude_seeds(baseline_spiked)
    level = baseline.best.val_loss
    found = [
        Standing(
            summary=baseline,
            is_baseline=True,
            difference=None,
            instability=_instability(baseline, baseline_lost, None, (), 1),
            bounds=(0.0, 0.0),
            loss=level.mean if level else None,
        )
    ]
    for each in candidates:
        if (of := pairs.get(each.candidate.name())) is None:
            continue
        closed, left_open = _closed_difference(each, baseline, of, spec)
        difference = _opened(closed, each, baseline)
        stable = each.exclude_seeds(of.spiked | of.baseline_spiked)
        own = stable.best.val_loss
        found.append(
            Standing(
                summary=stable,
                is_baseline=False,
                difference=difference,
                instability=_instability(
                    each, _without_model(each) | of.spiked, baseline, baseline_lost, spec.comparison_count()
                ),
                bounds=_bounds(closed),
                left_open=left_open,
                loss=level.mean + difference.mean if level and difference else own.mean if own else None,
            )
        )
    return sorted(found, key=lambda each: each.key())


def regrets(spec: ComparisonSpec, runs: Iterable[RunRecord]) -> dict[str, float | None]:
    """Candidate → how much lower its loss may be at a better rate or setting than the judged one, as far as the tuning
    left that open, whatever number of seeds judges it; of a random search how far other draws may move a difference.
    None where that may be any amount."""
    found: dict[str, float | None] = {}
    standings = standings_of(spec, summaries(spec, runs))
    compared = [each for each in standings if each.difference is not None]
    for each in standings:
        own = compared if each.is_baseline else [each] if each in compared else []
        known = [of.left_open[each.is_baseline] for of in own] or [0.0] * (len(standings) == 1)
        is_open = each.summary.rate_is_open() or any(math.isinf(of) for of in known)
        found[each.summary.candidate.name()] = max(known) if known and not is_open else None
    return found


@dataclass(frozen=True, kw_only=True)
class _Pairs:
    """The losses of the seeds that a candidate and the baseline both have, without those on which either spiked."""

    losses: tuple[float, ...]
    baseline_losses: tuple[float, ...]
    spiked: frozenset[int]
    baseline_spiked: frozenset[int]

    def most_spiked(self) -> bool:
        """Whether stable pairs are not the greater part: which of them are the stable ones is open then."""
        return len(self.losses) <= len(self.spiked) + len(self.baseline_spiked)


def _stable_pairs(each: CandidateSummary, baseline: CandidateSummary) -> _Pairs:
    mine, theirs = each.best.losses(), baseline.best.losses()
    here, there = spikes(mine, theirs, spread_of_difference(each, baseline))
    seeds = sorted((mine.keys() & theirs.keys()) - here - there)
    return _Pairs(
        losses=tuple(mine[seed] for seed in seeds),
        baseline_losses=tuple(theirs[seed] for seed in seeds),
        spiked=here,
        baseline_spiked=there,
    )


def _closed_difference(
    each: CandidateSummary, baseline: CandidateSummary, pairs: _Pairs, spec: ComparisonSpec
) -> tuple[Difference | None, tuple[float, float]]:
    """Over the seeds that both have at their best rates, as if neither rate lay at an edge, and the regrets of both
    beside an estimate that is sure. None where a seed of either diverged: survivors are not compared. Without a test
    where one of the two had more rates, for more tries find a lower minimum by chance alone; and where more of its runs
    spiked than of the baseline's, for these would be left out of its loss, or half of the seeds did for either; and
    where other draws could turn the verdict."""
    if SeedCoverage.UNSTABLE in (each.best.coverage, baseline.best.coverage):
        return None, (0.0, 0.0)
    degrees = len(pairs.losses) - 1
    luck = luck_of_draws(each, baseline, spec.comparison_count())
    flattered = each.selection() or 0.0, baseline.selection() or 0.0
    levels = looks_of(spec, spec.comparison_count())
    family_level = SIGNIFICANCE / max(spec.comparison_count(), 1)

    def regrets(variance: float, seeds: int | None, level_of_look: float = family_level) -> Reach:
        """Half of what the differences vary is the one's, half the other's. Beside the mean of so many seeds, or one
        that is sure. All looks have the same draws of a search, and share the luck of these."""
        mine, theirs = (of.regret(variance / 2, degrees) for of in (each, baseline))

        def both_regrets(level: float) -> tuple[float, float]:
            half_width = 0.0 if seeds is None else t_quantile(seeds - 1, level / 2) * math.sqrt(variance / seeds)
            of_draws = luck(family_level * level / level_of_look)
            return mine(level, half_width) + of_draws, theirs(level, half_width) + of_draws

        return both_regrets

    def reach(of: tuple[float, float]) -> tuple[float, float]:
        """Where the choice flattered the baseline's loss, the truth lies below the difference as well; where the
        candidate's, above."""
        return of[0] + flattered[1], of[1] + flattered[0]

    seeds = len(pairs.losses)
    level = levels[seeds].level if levels and seeds in levels else family_level
    variance: float | None = None
    told = (0.0, 0.0)

    def reach_here(of_differences: float) -> Reach:
        nonlocal variance, told
        here = regrets(of_differences, seeds, level)
        variance, told = of_differences, here(level)
        return lambda at: reach(here(at))

    found = paired_difference(
        pairs.losses,
        pairs.baseline_losses,
        spec.comparison_count(),
        reach_here,
        evaluation_error(spec.workload),
        levels,
        least_level(each, baseline, family_level),
    )
    if found is None:
        return None, (0.0, 0.0)
    draws_are_open = luck(family_level) == math.inf
    left_open = (luck(family_level),) * 2 if variance is None else regrets(variance, None)(family_level)
    found = found.model_copy(
        update={
            "regret": 0.0 if draws_are_open else told[0],
            "baseline_regret": 0.0 if draws_are_open else told[1],
            "rate_is_open": draws_are_open,
            "spiked": len(pairs.spiked),
            "baseline_spiked": len(pairs.baseline_spiked),
            "margin": spec.equivalence(),
            "at_look": levels is not None,
        }
    )
    left = len(spec.seeds) - found.spiked - found.baseline_spiked
    if levels is not None and variance is not None and seeds < left and seeds in levels and left in levels:
        last = levels[left].level
        below, above = reach(regrets(variance, left, last)(last))
        (chance,) = chances_of_verdict(
            found.mean,
            math.sqrt(variance / seeds),
            seeds,
            left,
            last,
            below=below,
            above=above,
            shared_error=found.evaluation_error,
            margin=found.margin,
            can_be_better=not baseline.rate_is_open(),
            can_be_worse=not each.rate_is_open(),
        )
        found = found.model_copy(update={"chance_of_verdict": float(chance)})
    untested: dict[str, object] = {"low": None, "high": None, "p_value": None}
    if each.planned_rates() != baseline.planned_rates() or found.spiked > found.baseline_spiked:
        found = found.model_copy(update=untested)
    elif pairs.most_spiked():
        found = found.model_copy(update=untested | {"most_spiked": True})
    return found, left_open


def _opened(found: Difference | None, each: CandidateSummary, baseline: CandidateSummary) -> Difference | None:
    """The same where a best rate lies at an edge: beyond it that loss may be lower by any amount, so that its end of
    the interval is open, and there is no test on that side."""
    mine, theirs = each.rate_is_open(), baseline.rate_is_open()
    if found is None or not (mine or theirs):
        return found
    ends: dict[str, object] = {"low": None if mine else found.low, "high": None if theirs else found.high}
    if found.p_value is not None and ((mine and found.mean >= 0) or (theirs and found.mean <= 0)):
        ends |= {"p_value": None, "rate_is_open": True}
    return found.model_copy(update=ends)


def _seeds_used(
    spec: ComparisonSpec, row: CandidateRow, each: CandidateSummary, baseline: CandidateSummary
) -> SeedsUsed | None:
    if spec.sequential is None:
        return None
    mine = {run.seed for run in each.runs()} & {*spec.seeds}
    awaited = [*each.runs(), *(run for run in baseline.runs() if run.seed in mine or run.seed not in spec.seeds)]
    difference = row.difference
    if not mine or any(run.status not in TERMINAL for run in awaited):
        status = SeedsStatus.WAITING
    elif spec.sequential.improvement is not None:
        status = _seeds_status_of_try(spec, each, baseline)
    elif row.conclusion in (Conclusion.BETTER, Conclusion.WORSE, Conclusion.AS_GOOD):
        status = SeedsStatus.DECIDED
    elif difference is None or row.conclusion is Conclusion.UNEQUALLY_TUNED:
        status = SeedsStatus.NO_VERDICT
    elif len(mine) == len(spec.seeds):
        status = SeedsStatus.ALL_USED
    elif difference.chance_of_verdict is not None and difference.chance_of_verdict < FUTILE:
        status = SeedsStatus.FUTILE
    else:
        status = SeedsStatus.OPEN
    planned, step = spec.sequential.first_seeds, spec.sequential.seeds_per_look
    looks = 1 + math.ceil((len(mine) - planned) / step) - (status is SeedsStatus.WAITING) if mine else 0
    return SeedsUsed(status=status, looks=looks, seeds=len(mine), most=len(spec.seeds))


def _seeds_status_of_try(spec: ComparisonSpec, each: CandidateSummary, baseline: CandidateSummary) -> SeedsStatus:
    """Of a try all of whose runs have ended; where one of them has no result, a retry of it comes before more seeds."""
    runs = [*each.runs(), *baseline.runs()]
    found = improvement_of(spec, runs)
    if found.state is PairsState.OPEN and found.pairs < len({run.seed for run in runs}):
        return SeedsStatus.WAITING
    return {
        PairsState.OPEN: SeedsStatus.OPEN,
        PairsState.SHOWN: SeedsStatus.DECIDED,
        PairsState.FUTILE: SeedsStatus.FUTILE,
        PairsState.EXHAUSTED: SeedsStatus.ALL_USED,
    }[found.state]


def added_runs(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> tuple[PlannedRun, ...]:
    """The next seeds of a sequential comparison: of each candidate whose verdict is open after a look, and of the
    baseline wherever it lacks one of theirs; at the settings of their judged runs. Nothing that is there already."""
    spec = comparison_spec(experiment)
    if spec.sequential is None:
        return ()
    wanted = {
        row.candidate: spec.seeds[: row.seeds_used.seeds + spec.sequential.seeds_per_look]
        for row in compare(experiment, runs).rows
        if row.seeds_used is not None and row.seeds_used.status is SeedsStatus.OPEN
    }
    wanted[spec.baseline_name()] = max(wanted.values(), key=len, default=())
    known = {(run.candidate, run.lr, run.seed) for run in runs}
    judged = {
        (run.candidate, run.lr): spec.searched_parameters(0, run.spec)
        for run in runs
        if run.seed in spec.seeds and run.spec
    }
    return tuple(
        spec.planned_run(name, lr=lr, seed=seed, setting=setting)
        for seed in spec.seeds
        for (name, lr), setting in judged.items()
        if seed in wanted.get(name, ()) and (name, lr, seed) not in known
    )


def _all_pairs(
    spec: ComparisonSpec, standings: Sequence[Standing], rows: Sequence[CandidateRow]
) -> tuple[CandidatePair, ...]:
    """Every candidate against every other one, as each is against the baseline: who ranks before is held against who
    ranks behind, and whoever it is against the baseline."""
    found = []
    for (one, row), (another, other_row) in itertools.combinations(zip(standings, rows, strict=True), 2):
        if one.is_baseline:
            one, row, another, other_row = another, other_row, one, row
        if not another.is_baseline:
            pairs = _stable_pairs(one.summary, another.summary)
            other_lost = _without_model(another.summary) | pairs.baseline_spiked
            alone = _instability(another.summary, other_lost, None, (), 1)
            other_row = other_row.model_copy(update={"instability": alone})
            row = row.model_copy(
                update={
                    "difference": _opened(
                        _closed_difference(one.summary, another.summary, pairs, spec)[0], one.summary, another.summary
                    ),
                    "instability": _instability(
                        one.summary,
                        _without_model(one.summary) | pairs.spiked,
                        another.summary,
                        other_lost,
                        spec.comparison_count(),
                    ),
                }
            )
            row = row.model_copy(update={"conclusion": conclusion(row, other_row)})
        found.append(
            CandidatePair(
                candidate=row.candidate,
                other=other_row.candidate,
                title=row.title,
                other_title=other_row.title,
                difference=row.difference,
                conclusion=row.conclusion,
                verdict=verdict(row, other_row, spec.workload.task.loss_unit, spec),
            )
        )
    return tuple(found)


def evaluation_error(workload: Workload) -> float:
    """Standard error of a difference of two losses by the validation text, which is the same for all runs; 0 for tasks
    of which it was not measured."""
    if workload.task.kind != "pretrain":
        return 0.0
    return EVALUATION_ERROR / math.sqrt(workload.evaluation.sequences * workload.data.sequence_length_tokens)


def _instability(
    each: CandidateSummary,
    lost: Collection[int],
    baseline: CandidateSummary | None,
    baseline_lost: Collection[int],
    comparisons: int,
) -> Instability | None:
    ended = _ended(each)
    if not ended:
        return None
    if baseline is None:
        return instability(lost, ended, None)
    return instability(lost, ended, baseline_lost, comparisons, baseline_ended=_ended(baseline))


def _ended(each: CandidateSummary) -> set[int]:
    """Judged seeds whose run has a result."""
    return {run.seed for run in each.best.runs if run.result is not None}


def _without_model(each: CandidateSummary) -> set[int]:
    """Judged seeds that diverged or ran out of memory."""
    return {run.seed for run in each.best.runs if run.result and run.result.verdict is not Verdict.CONVERGED}


def _time_to_target(
    spec: ComparisonSpec, row: CandidateRow, each: CandidateSummary, of: CandidateSummary, curves: Curves
) -> TimeToTarget | None:
    """When the candidate came down to the loss at which the baseline's run of the same seed ended, whatever the
    verdict: told of better ones alone, speed-ups would be selected by their luck.

    At the last step the interval is that of the difference of losses, so that both say the same. At an earlier one it
    has the spread of the seeds there, and what that of the difference holds beside: what tuning left open of either,
    the error of the validation text, and what the choice of the rates took off losses where the judged seeds chose
    them."""
    best, baseline = each.best, of.best
    if SeedCoverage.UNSTABLE in (best.coverage, baseline.coverage):
        return None
    mine, theirs, targets = best.runs_by_seed(), baseline.runs_by_seed(), baseline.losses()
    stable = (mine.keys() & targets.keys()) - best.left_out - baseline.left_out
    seeds = [seed for seed in sorted(stable) if mine[seed].id in curves and theirs[seed].id in curves]
    if not seeds:
        return None
    runs = [mine[seed] for seed in seeds]
    apart = [(curves[run.id], targets[run.seed]) for run in runs]
    steps, losses = _above_targets(apart)
    first, last = _bounds_of_step(spec, row.difference, each, of, steps, losses)
    there = first_reached(steps, losses.mean(axis=0).tolist(), 0.0)
    speed_up = None
    if (first, last) != (None, None):
        their_steps, their_losses = _above_targets([(curves[theirs[seed].id], targets[seed]) for seed in seeds])
        they = first_reached(their_steps, their_losses.mean(axis=0).tolist(), 0.0) or 0.0
        latest = their_steps[-1] if their_steps else 0.0
        speed_up = OpenInterval(
            mean=they / there if there and first else None,  # before the first evaluation nobody knows when
            low=they / last if last else None,
            high=latest / first if first else None,
            n=len(seeds),
        )

    def times(per_step: float = 1.0) -> OpenInterval | None:
        mean, low, high = (None if step is None else step * per_step for step in (there, first, last))
        known = (mean, low, high) != (None, None, None)
        return OpenInterval(mean=mean, low=low, high=high, n=len(seeds)) if known else None

    return TimeToTarget(
        reached=sum(first_reached(curve.steps, curve.losses, target) is not None for curve, target in apart),
        n=len(seeds),
        steps=times(),
        tokens=times(statistics.fmean(map(tokens_per_step, runs))),
        device_hours=times(statistics.fmean(device_hours_until(run, 1.0) for run in runs)),
        speed_up=speed_up,
    )


def _above_targets(apart: Sequence[tuple[ValidationCurve, float]]) -> tuple[list[float], Array]:
    """The steps at which all of these curves were evaluated, and how far each lies above its target: [run, step]."""
    known = [dict(zip(curve.steps, curve.losses, strict=True)) for curve, _ in apart]
    steps = sorted(set.intersection(*(set(losses) for losses in known)))
    above = np.array(
        [[losses[step] - target for step in steps] for losses, (_, target) in zip(known, apart, strict=True)]
    )
    return steps, np.where(np.isfinite(above), above, np.nan)


def _bounds_of_step(
    spec: ComparisonSpec,
    of: Difference | None,
    each: CandidateSummary,
    baseline: CandidateSummary,
    steps: Sequence[float],
    losses: Array,
) -> tuple[float | None, float | None]:
    """Until which step the candidate is shown to lie above the baseline's final losses, and from which on below; of one
    whose best rate lies at an edge, or of such a baseline, only what another rate could not turn."""
    if of is None or (of.low is None and of.high is None) or len(losses) != of.n:
        return None, None
    comparisons = max(spec.comparison_count(), 1)
    levels = looks_of(spec, comparisons)
    level = SIGNIFICANCE / comparisons if levels is None else levels[of.n].level
    error = losses.std(axis=0, ddof=1) / math.sqrt(of.n)
    half = np.hypot(t_quantile(of.n - 1, level / 2) * error, normal_quantile(level / 2) * of.evaluation_error)
    mean = losses.mean(axis=0)
    low = mean - half - of.regret - (baseline.selection() or 0.0)
    high = mean + half + of.baseline_regret + (each.selection() or 0.0)
    first, last = crossing_bounds(steps, low.tolist(), high.tolist())
    return None if each.rate_is_open() else first or None, None if baseline.rate_is_open() else last


def tokens_per_step(run: RunRecord) -> float:
    """Of a run with a result; a damaged specification does not matter for it."""
    return run.result.tokens / run.result.steps if run.result and run.result.steps else 0.0


def device_hours_until(run: RunRecord, steps: float) -> float:
    """In proportion to the steps of the run, each of which counts once: what an attempt lost when its machine did is no
    time of the optimizer's."""
    seconds = (run.result.productive_seconds if run.result else 0.0) or run.device_seconds
    return seconds / SECONDS_PER_HOUR * steps / run.steps_total


def _row(each: CandidateSummary) -> CandidateRow:
    """One line of the leaderboard by itself; what it is to the others is still to be said."""
    best = each.best
    grid = [rate.lr for rate in each.rates]
    # Sizes and times are known even where no loss is finite, from whichever runs have a result.
    results = best.results() or tuple(run.result for run in each.runs() if run.result)
    peaks = [peak for result in results if (peak := result.peak_tensor_bytes()) is not None]
    has_loss = each.chosen.coverage is not SeedCoverage.EMPTY or best.coverage is not SeedCoverage.EMPTY
    ended = [run.device_seconds / SECONDS_PER_HOUR for run in best.runs if run.result]
    return CandidateRow(
        candidate=each.candidate.name(),
        optimizer=each.candidate.optimizer,
        title=each.candidate.title(),
        is_baseline=False,
        best_lr=best.lr if has_loss else None,
        # One rate is no grid: its verdict names it.
        edge_of_grid=has_loss and len(grid) > 1 and best.lr in (grid[0], grid[-1]),
        val_loss=best.val_loss,
        difference=None,
        optimizer_state_bytes=max((result.optimizer_state_bytes for result in results), default=None),
        parameter_bytes=max((result.parameter_bytes for result in results), default=None),
        peak_memory_bytes=max(peaks, default=None),
        peak_memory_kind=TENSORS if peaks else None,
        peak_memory_note=None if peaks else next((result.why_no_peak() for result in results), None),
        step_seconds=median([result.step_seconds_median for result in results]),
        optimizer_seconds=median([result.optimizer_seconds_median for result in results]),
        tokens_per_second=median([result.tokens_per_second for result in results]),
        device_hours=sum(run.device_seconds for run in each.runs()) / SECONDS_PER_HOUR,
        verdict="",
        conclusion=Conclusion.NO_LOSS,
        learning_rates=tuple(
            _rate_row(rate, each.settings, tuple(sorted(seed for lr, seed in each.grid.spikes if lr == rate.lr)))
            for rate in each.rates
        ),
        verdicts=dict(Counter(run.result.verdict for run in each.runs() if run.result)),
        outcomes=dict(Counter(outcome for run in each.runs() if (outcome := run.outcome()) is not None)),
        final=_rate_row(each.final, each.settings) if each.final else None,
        tuning=each.tuned and each.final is None,
        extended_rates=len(each.rates) - each.planned_rates(),
        run_device_hours=statistics.fmean(ended) if ended else None,
        energy_joules=_energy(best.results()),
    )


def _rate_row(
    rate: RateSummary, settings: Mapping[float, Setting], spiked_seeds: tuple[int, ...] = ()
) -> LearningRateRow:
    return LearningRateRow(
        lr=rate.lr,
        val_loss=rate.val_loss,
        runs_ended=sum(run.status in TERMINAL for run in rate.runs),
        runs_total=len(rate.runs),
        diverged=sum(result.verdict is Verdict.DIVERGED for result in rate.results()),
        out_of_memory=sum(result.verdict is Verdict.OUT_OF_MEMORY for result in rate.results()),
        run_ids=tuple(run.id for run in rate.runs),
        left_out=len(rate.left_out),
        spiked_seeds=spiked_seeds,
        setting=dict(settings.get(rate.lr, {})),
    )


def _energy(results: Sequence[Result]) -> float | None:
    """Mean energy of a run; None unless every result has one."""
    found = [getattr(result, "energy_joules", None) for result in results]
    known = [float(each) for each in found if each is not None]
    return statistics.fmean(known) if known and len(known) == len(found) else None


def _device(runs: Iterable[RunRecord]) -> str | None:
    """The device of all results; several are named side by side."""
    environments = [run.result.environment for run in runs if run.result]
    names = {"cpu" if each.device == "cpu" else each.device_name for each in environments}
    return ", ".join(sorted(names)) or None
