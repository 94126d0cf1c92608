"""The answer to a comparison: records in, leaderboard out. A pure function; nothing here reads a store.

runs ─► each candidate at the setting found (`candidates.py`) ─► the estimator ─► time to the baseline's loss ─► Pareto
     front ─► sentences and notes that claim no more
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.candidates import CandidateSummary, RunGroup, looks_of, summaries
from orchestrator.analysis.estimator import conclude, half_width, instability, paired_difference
from orchestrator.analysis.sequential import FUTILE, Array, chance_of_verdict
from orchestrator.analysis.statistics import median
from orchestrator.analysis.targets import crossing_bounds, first_reached, fronts_shown, pareto_front
from orchestrator.analysis.verdicts import notes, verdict
from orchestrator.errors import ConflictError
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import (
    SIGNIFICANCE,
    TENSORS,
    CandidatePair,
    CandidateRow,
    Comparison,
    Conclusion,
    Difference,
    ExperimentRecord,
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
AdaPM and AdaPM-mini have 0.29 to 0.59 on Python text after 150 steps. Optimizers that differ by 0.3 nats and more have
1.2 to 1.5, which is 3 % of such a difference at 32,768 tokens (`python -m benchmarks.evaluation_error`)."""


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
        f"`adapm-bench compare {experiment.id}` shows its best trials, "
        f"`adapm-bench clone {experiment.id} --more-seeds 3` compares them over fresh seeds"
    )


def compare(experiment: ExperimentRecord, runs: Iterable[RunRecord], curves: Curves | None = None) -> Comparison:
    """The leaderboard of a comparison from all of its runs, ended or not; best first, without a finite loss last."""
    runs = tuple(runs)
    spec = comparison_spec(experiment)
    standings = standings_of(spec, summaries(spec, runs))
    baseline = next(each.summary for each in standings if each.is_baseline)
    concluded = concluded_rows(spec, standings)
    baseline_row = next(row for row in concluded if row.is_baseline)
    task = spec.workload.task
    rows = tuple(
        row.model_copy(
            update={
                "time_to_target": _time_to_target(spec, row, each.summary, baseline, curves or {}),
                "seeds_used": None if row.is_baseline else _seeds_used(spec, row, each.summary, baseline),
                "verdict": verdict(row, baseline_row, task.loss_unit, spec.sample()),
            }
        )
        for each, row in zip(standings, concluded, strict=True)
    )
    pairs = _all_pairs(spec, standings, rows) if spec.all_pairs else ()
    shown = fronts_shown([each.loss_and_bytes() for each in standings], _intervals(rows, pairs))
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
        notes=notes(spec, runs, rows),
    )


def _intervals(
    rows: Sequence[CandidateRow], pairs: Sequence[CandidatePair]
) -> dict[tuple[int, int], tuple[float, float]]:
    """Index and index → between which bounds the first one's loss less the second one's lies. All hold at once: bounds
    to the baseline give those of two others, wider than a test of the two would. Whose best trial lies at an edge may
    be lower by any amount."""
    tested = {(pair.candidate, pair.other): _bounds(pair.difference) for pair in pairs}
    found = {}
    for (one, row), (other, other_row) in itertools.permutations(enumerate(rows), 2):
        low, high = (0.0, 0.0) if row.is_baseline else _bounds(row.difference)
        other_low, other_high = (0.0, 0.0) if other_row.is_baseline else _bounds(other_row.difference)
        bounds = low - other_high, high - other_low
        if (reverse := tested.get((other_row.candidate, row.candidate))) is not None:
            bounds = -reverse[1], -reverse[0]
        low, high = tested.get((row.candidate, other_row.candidate), bounds)
        found[one, other] = -math.inf if row.edge_of_grid else low, math.inf if other_row.edge_of_grid else high
    return found


def _bounds(difference: Difference | None) -> tuple[float, float]:
    return (-math.inf, math.inf) if difference is None else difference.bounds()


def concluded_rows(spec: ComparisonSpec, standings: Sequence["Standing"]) -> list[CandidateRow]:
    """The rows of a leaderboard with their verdicts, not yet in words."""
    fronts = pareto_front([each.loss_and_bytes() for each in standings])
    baseline = next(each.summary for each in standings if each.is_baseline).judged()
    found = []
    for standing, front in zip(standings, fronts, strict=True):
        mine = standing.summary.judged()
        conclusion = conclude(standing.difference, mine, baseline)
        if standing.is_baseline:
            without_loss = Conclusion.UNSTABLE if mine.lost else Conclusion.NO_LOSS
            conclusion = Conclusion.BASELINE if mine.losses else without_loss
        found.append(
            _row(standing.summary).model_copy(
                update={
                    "is_baseline": standing.is_baseline,
                    "difference": standing.difference,
                    "instability": instability(
                        mine, None if standing.is_baseline else baseline, spec.comparison_count()
                    ),
                    "on_pareto_front": front,
                    "conclusion": conclusion,
                }
            )
        )
    return found


def compared_runs(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> tuple[str, ...]:
    """The ended runs whose curves `compare` can use: those of each candidate at its best learning rate."""
    found = summaries(comparison_spec(experiment), runs)
    return tuple(run.id for each in found for run in each.best.runs if run.result is not None)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a candidate stands."""

    summary: CandidateSummary
    is_baseline: bool
    difference: Difference | None
    loss: float | None
    """What it is ranked by: the baseline's loss and the difference to it, so that seeds that one of the two lacks
    change no order. Where there is no difference, its own loss."""

    def is_unstable(self) -> bool:
        """Whether any of its judged runs was lost."""
        return bool(self.summary.best.lost)

    def key(self) -> tuple[bool, float, tuple[int, float]]:
        """Sorts the best first; while nothing can be compared, by the best trial so far."""
        return self.loss is None, self.loss or 0.0, self.summary.chosen.rank()

    def loss_and_bytes(self) -> tuple[float, float] | None:
        """What the Pareto front is drawn over; None for who is unstable."""
        if self.loss is None or self.is_unstable():
            return None
        return self.loss, float(max(result.optimizer_state_bytes for result in self.summary.best.results()))


def standings_of(spec: ComparisonSpec, candidates: Sequence[CandidateSummary]) -> list[Standing]:
    """Every candidate, the best first."""
    baseline = next(each for each in candidates if each.candidate.name() == spec.baseline_name())
    level = baseline.best.val_loss()
    found = []
    for each in candidates:
        difference = None if each is baseline else _difference(spec, each, baseline)
        own = each.best.val_loss()
        loss = level.mean + difference.mean if level and difference else own.mean if own else None
        found.append(Standing(summary=each, is_baseline=each is baseline, difference=difference, loss=loss))
    return sorted(found, key=lambda each: each.key())


def _difference(spec: ComparisonSpec, one: CandidateSummary, other: CandidateSummary) -> Difference | None:
    return paired_difference(
        one.best.units(),
        other.best.units(),
        comparisons=spec.comparison_count(),
        margin=spec.equivalence(),
        evaluation_error=evaluation_error(spec.workload),
        looks=looks_of(spec, spec.comparison_count()),
    )


def _seeds_used(
    spec: ComparisonSpec, row: CandidateRow, each: CandidateSummary, baseline: CandidateSummary
) -> SeedsUsed | None:
    if spec.sequential is None:
        return None
    mine = {run.seed for run in each.runs()} & {*spec.seeds}
    awaited = [*each.runs(), *(run for run in baseline.runs() if run.seed in mine or run.seed not in spec.seeds)]
    difference = row.difference
    baseline_is_judged = any(run.seed in spec.seeds for run in baseline.runs())
    if not mine or not baseline_is_judged or any(run.status not in TERMINAL for run in awaited):
        status = SeedsStatus.WAITING
    elif row.conclusion in (Conclusion.BETTER, Conclusion.WORSE, Conclusion.AS_GOOD):
        status = SeedsStatus.DECIDED
    elif len(mine) == len(spec.seeds):
        status = SeedsStatus.ALL_USED
    elif difference is not None and (difference.decides() or _chance_of_verdict(spec, difference) < FUTILE):
        status = SeedsStatus.FUTILE
    else:
        status = SeedsStatus.OPEN
    planned, step = spec.sequential.first_seeds, spec.sequential.seeds_per_look
    looks = 1 + math.ceil((len(mine) - planned) / step) - (status is SeedsStatus.WAITING) if mine else 0
    return SeedsUsed(status=status, looks=looks, seeds=len(mine), most=len(spec.seeds))


def _chance_of_verdict(spec: ComparisonSpec, difference: Difference) -> float:
    """That the last seed's interval decides, if differences go on as they are; 1 where nothing is known of that."""
    levels, most = looks_of(spec, spec.comparison_count()) or {}, len(spec.seeds)
    if difference.sd is None or difference.n >= most or most not in levels:
        return 1.0
    return chance_of_verdict(
        difference.mean,
        difference.sd,
        difference.n,
        most,
        levels[most].level,
        evaluation_error=difference.evaluation_error,
        margin=difference.margin,
    )


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
        (run.candidate, run.lr): spec.searched_parameters(0, run.spec) or {"lr": run.lr}
        for run in runs
        if run.seed in spec.seeds and run.spec
    }
    return tuple(
        spec.planned_run(name, seed=seed, setting=setting)
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
            difference, mine, theirs = (
                _difference(spec, one.summary, another.summary),
                one.summary.judged(),
                another.summary.judged(),
            )
            row = row.model_copy(
                update={
                    "difference": difference,
                    "instability": instability(mine, theirs, spec.comparison_count()),
                    "conclusion": conclude(difference, mine, theirs),
                }
            )
        found.append(
            CandidatePair(
                candidate=row.candidate,
                other=other_row.candidate,
                title=row.title,
                other_title=other_row.title,
                difference=row.difference,
                conclusion=row.conclusion,
                verdict=verdict(row, other_row, spec.workload.task.loss_unit, spec.sample()),
            )
        )
    return tuple(found)


def evaluation_error(workload: Workload) -> float:
    """Standard error of a difference of two losses by the validation text, which is the same for all runs; 0 for tasks
    of which it was not measured."""
    if workload.task.kind != "pretrain":
        return 0.0
    return EVALUATION_ERROR / math.sqrt(workload.evaluation.sequences * workload.data.sequence_length_tokens)


def _time_to_target(
    spec: ComparisonSpec, row: CandidateRow, each: CandidateSummary, of: CandidateSummary, curves: Curves
) -> TimeToTarget | None:
    """When the candidate came down to the loss at which the baseline's run of the same seed ended, whatever the
    verdict: told of better ones alone, speed-ups would be selected by their luck.

    At the last step the interval is that of the difference of losses, so that both say the same."""
    best, baseline = each.best, of.best
    mine, theirs, targets = best.runs_by_seed(), baseline.runs_by_seed(), baseline.losses()
    stable = sorted(best.losses().keys() & targets.keys())
    seeds = [seed for seed in stable if mine[seed].id in curves and theirs[seed].id in curves]
    if not seeds:
        return None
    runs = [mine[seed] for seed in seeds]
    apart = [(curves[run.id], targets[run.seed]) for run in runs]
    steps, losses = _above_targets(apart)
    first, last = _bounds_of_step(spec, row, of.is_at_edge, steps, losses)
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
    spec: ComparisonSpec, row: CandidateRow, baseline_is_at_edge: bool, steps: Sequence[float], losses: Array
) -> tuple[float | None, float | None]:
    """Until which step the candidate is shown to lie above the baseline's final losses, and from which on below. Whose
    best trial lies at an edge might have been sooner."""
    of = row.difference
    if of is None or of.low is None or len(losses) != of.n:
        return None, None
    comparisons = max(spec.comparison_count(), 1)
    levels = looks_of(spec, comparisons)
    level = SIGNIFICANCE / comparisons if levels is None else levels[of.n].level
    half = np.array([half_width(level / 2, of.n, sd, of.evaluation_error) for sd in losses.std(axis=0, ddof=1)])
    mean = losses.mean(axis=0)
    first, last = crossing_bounds(steps, (mean - half).tolist(), (mean + half).tolist())
    return None if row.edge_of_grid else first or None, None if baseline_is_at_edge else last


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
    # Sizes and times are known even where no loss is finite, from whichever runs have a result.
    results = best.results() or tuple(run.result for run in each.runs() if run.result)
    peaks = [peak for result in results if (peak := result.peak_tensor_bytes()) is not None]
    has_loss = bool(each.chosen.losses() or best.losses())
    ended = [run.device_seconds / SECONDS_PER_HOUR for run in best.runs if run.result]
    return CandidateRow(
        candidate=each.candidate.name(),
        optimizer=each.candidate.optimizer,
        title=each.candidate.title(),
        is_baseline=False,
        best_lr=best.lr if has_loss else None,
        edge_of_grid=has_loss and each.is_at_edge,
        val_loss=best.val_loss(),
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
        learning_rates=tuple(map(_rate_row, each.rates)),
        verdicts=dict(Counter(run.result.verdict for run in each.runs() if run.result)),
        outcomes=dict(Counter(outcome for run in each.runs() if (outcome := run.outcome()) is not None)),
        final=_rate_row(each.final) if each.final else None,
        tuning=each.tuned and each.final is None,
        run_device_hours=statistics.fmean(ended) if ended else None,
        energy_joules=_energy(best.results()),
    )


def _rate_row(rate: RunGroup) -> LearningRateRow:
    return LearningRateRow(
        lr=rate.lr,
        val_loss=rate.val_loss(),
        runs_ended=sum(run.status in TERMINAL for run in rate.runs),
        runs_total=len(rate.runs),
        diverged=sum(result.verdict is Verdict.DIVERGED for result in rate.results()),
        out_of_memory=sum(result.verdict is Verdict.OUT_OF_MEMORY for result in rate.results()),
        run_ids=tuple(run.id for run in rate.runs),
        lost=len(rate.lost),
        setting=dict(rate.setting),
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
