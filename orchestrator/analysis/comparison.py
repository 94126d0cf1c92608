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

from orchestrator.analysis.candidates import CandidateSummary, SettingRuns, design_looks, summaries
from orchestrator.analysis.estimator import conclude, half_width, instability, paired_difference
from orchestrator.analysis.sequential import FUTILE, Array, chance_of_verdict
from orchestrator.analysis.statistics import median
from orchestrator.analysis.targets import crossing_bounds, first_reached, pareto_front
from orchestrator.analysis.verdicts import MOST_NOTES, note_on_baseline, notes, verdict
from orchestrator.design import ComparisonDesign
from orchestrator.errors import ConflictError
from orchestrator.jobs import TERMINAL
from orchestrator.records import (
    SECONDS_PER_HOUR,
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
from orchestrator.tuning.ranges import searched_values
from orchestrator.tuning.tuner import Setting
from worker.records.result import Verdict

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
"""The curves by run id. A run without one has no time to target."""


def comparison_design(experiment: ExperimentRecord) -> ComparisonDesign:
    """Return the design by which an experiment is judged. Raises `ConflictError` for a sweep."""
    if (spec := experiment.spec.comparison()) is not None:
        return spec.design()
    raise ConflictError(
        f"experiment {experiment.id} is a sweep: its trials have one seed and say nothing of chance; "
        f"`adapm-bench compare {experiment.id}` shows its best trials, "
        f"`adapm-bench clone {experiment.id} --more-seeds 3` compares them over fresh seeds"
    )


def compare(
    experiment: ExperimentRecord,
    runs: Iterable[RunRecord],
    curves: Curves | None = None,
    *,
    baseline: str | None = None,
) -> Comparison:
    """Return the leaderboard of a comparison from all of its runs, ended or not; best first, without a finite loss
    last. `baseline`: compared with another candidate than was planned, with intervals that allow for the choice."""
    runs = tuple(runs)
    design = comparison_design(experiment)
    chosen: tuple[str, ...] = ()
    if baseline is not None and baseline != design.baseline:
        chosen = (note_on_baseline(design, baseline, f"planned: {design.baseline}"),)
        design = design.hold_against(baseline)
    ranked = rank_candidates(design, summaries(design, runs))
    rival = next(candidate.summary for candidate in ranked if candidate.is_baseline)
    concluded = concluded_rows(design, ranked)
    baseline_row = next(row for row in concluded if row.is_baseline)
    rows = tuple(
        row.model_copy(
            update={
                "time_to_target": _time_to_target(design, row, candidate.summary, rival, curves or {}),
                "seeds_used": None if row.is_baseline else _seeds_used(design, row, candidate.summary, rival),
                "verdict": verdict(row, baseline_row, design.loss_unit, design.sample),
            }
        )
        for candidate, row in zip(ranked, concluded, strict=True)
    )
    return Comparison(
        experiment_id=experiment.id,
        name=experiment.name,
        complete=all(run.status in TERMINAL for run in runs) and not experiment.counts.growing,
        baseline=design.baseline,
        device=device_names(runs),
        loss_name=design.loss_name,
        loss_unit=design.loss_unit,
        tuning_seeds=design.tuning_seeds,
        rows=rows,
        pairs=_all_pairs(design, ranked, rows) if design.all_pairs else (),
        notes=(*chosen, *notes(design, runs, rows))[:MOST_NOTES],
    )


def concluded_rows(design: ComparisonDesign, ranked: Sequence["RankedCandidate"]) -> list[CandidateRow]:
    """Return the rows of a leaderboard with their verdicts, not yet in words."""
    fronts = pareto_front([candidate.loss_and_bytes() for candidate in ranked])
    baseline = next(candidate.summary for candidate in ranked if candidate.is_baseline).judged()
    rows = []
    for candidate, front in zip(ranked, fronts, strict=True):
        judged = candidate.summary.judged()
        conclusion = conclude(candidate.difference, judged, baseline)
        if candidate.is_baseline:
            without_loss = Conclusion.UNSTABLE if judged.lost else Conclusion.NO_LOSS
            conclusion = Conclusion.BASELINE if judged.losses else without_loss
        rows.append(
            _row(candidate.summary).model_copy(
                update={
                    "is_baseline": candidate.is_baseline,
                    "difference": candidate.difference,
                    "instability": instability(judged, None if candidate.is_baseline else baseline, design.comparisons),
                    "on_pareto_front": front,
                    "conclusion": conclusion,
                }
            )
        )
    return rows


def compared_runs(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> tuple[str, ...]:
    """Return the ended runs whose curves `compare` can use: those of each candidate at its best learning rate."""
    candidates = summaries(comparison_design(experiment), runs)
    return tuple(run.id for summary in candidates for run in summary.compared_runs.runs if run.verdict is not None)


@dataclass(frozen=True, kw_only=True)
class RankedCandidate:
    """The rank and front of a candidate."""

    summary: CandidateSummary
    is_baseline: bool
    difference: Difference | None
    loss: float | None
    """The loss by which it is ranked: the baseline's loss and the difference to it, so that seeds that one of the two
    lacks change no order. Where there is no difference, its own loss."""

    def key(self) -> tuple[bool, float, tuple[int, float]]:
        """Return a key that sorts the best first; while nothing can be compared, by the best trial so far."""
        return self.loss is None, self.loss or 0.0, self.summary.best_trial.rank()

    def loss_and_bytes(self) -> tuple[float, float] | None:
        """Return the coordinates of the Pareto front; None if the candidate is unstable, or its memory unmeasured."""
        sizes = [run.result.optimizer_state_bytes for run in self.summary.compared_records() if run.result]
        if self.loss is None or self.summary.compared_runs.lost or not sizes:
            return None
        return self.loss, float(max(sizes))


def rank_candidates(design: ComparisonDesign, candidates: Sequence[CandidateSummary]) -> list[RankedCandidate]:
    """Return every candidate, the best first."""
    baseline = next(summary for summary in candidates if summary.candidate.name == design.baseline)
    level = baseline.compared_runs.val_loss()
    ranked = []
    for summary in candidates:
        is_baseline = summary is baseline
        difference = None if is_baseline else _difference(design, summary, baseline)
        estimate = summary.compared_runs.val_loss()
        loss = level.mean + difference.mean if level and difference else estimate.mean if estimate else None
        ranked.append(RankedCandidate(summary=summary, is_baseline=is_baseline, difference=difference, loss=loss))
    return sorted(ranked, key=RankedCandidate.key)


def _difference(design: ComparisonDesign, candidate: CandidateSummary, rival: CandidateSummary) -> Difference | None:
    return paired_difference(
        candidate.compared_runs.units(),
        rival.compared_runs.units(),
        comparisons=design.comparisons,
        margin=design.margin,
        evaluation_error=evaluation_error(design.validation_tokens),
        looks=design_looks(design, design.comparisons),
    )


def _seeds_used(
    design: ComparisonDesign, row: CandidateRow, summary: CandidateSummary, baseline: CandidateSummary
) -> SeedsUsed | None:
    if design.first_seeds is None:
        return None
    seeds = {run.seed for run in summary.runs()} & {*design.seeds}
    awaited = [
        *summary.runs(),
        *(run for run in baseline.runs() if run.seed in seeds or run.seed not in design.seeds),
    ]
    difference = row.difference
    baseline_is_judged = any(run.seed in design.seeds for run in baseline.runs())
    if not seeds or not baseline_is_judged or any(run.status not in TERMINAL for run in awaited):
        status = SeedsStatus.WAITING
    elif row.conclusion in (Conclusion.BETTER, Conclusion.WORSE, Conclusion.AS_GOOD):
        status = SeedsStatus.DECIDED
    elif len(seeds) == len(design.seeds):
        status = SeedsStatus.ALL_USED
    elif difference is not None and (difference.decides() or _chance_of_verdict(design, difference) < FUTILE):
        status = SeedsStatus.FUTILE
    else:
        status = SeedsStatus.OPEN
    looks = 1 + len(seeds) - design.first_seeds - (status is SeedsStatus.WAITING) if seeds else 0
    return SeedsUsed(status=status, looks=looks, seeds=len(seeds), most=len(design.seeds))


def _chance_of_verdict(design: ComparisonDesign, difference: Difference) -> float:
    """Return the probability that the last seed's interval decides if differences continue as they are; 1 if
    unknown."""
    levels, seed_count = design_looks(design, design.comparisons) or {}, len(design.seeds)
    if difference.sd is None or difference.n >= seed_count or seed_count not in levels:
        return 1.0
    return chance_of_verdict(
        difference.mean,
        difference.sd,
        difference.n,
        seed_count,
        levels[seed_count].level,
        evaluation_error=difference.evaluation_error,
        margin=difference.margin,
    )


def added_seeds(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> tuple[tuple[str, int, Setting], ...]:
    """Return (candidate, seed, setting) of the runs that follow in a sequential comparison: of each candidate whose
    verdict is open after a look, and of the baseline wherever it lacks one of theirs; at the settings of their judged
    runs. Nothing that is there already."""
    design = comparison_design(experiment)
    if design.first_seeds is None:
        return ()
    wanted = {
        row.candidate: design.seeds[: row.seeds_used.seeds + 1]
        for row in compare(experiment, runs).rows
        if row.seeds_used is not None and row.seeds_used.status is SeedsStatus.OPEN
    }
    wanted[design.baseline] = max(wanted.values(), key=len, default=())
    queued = {(run.candidate, run.lr, run.seed) for run in runs}
    judged = {
        (run.candidate, run.lr): searched_values(run.spec, design.searched) or {"lr": run.lr}
        for run in runs
        if run.seed in design.seeds and run.spec
    }
    return tuple(
        (name, seed, setting)
        for seed in design.seeds
        for (name, lr), setting in judged.items()
        if seed in wanted.get(name, ()) and (name, lr, seed) not in queued
    )


def _all_pairs(
    design: ComparisonDesign, ranked: Sequence[RankedCandidate], rows: Sequence[CandidateRow]
) -> tuple[CandidatePair, ...]:
    """Return the comparison of each pair of candidates: the better-ranked one against the other, and every candidate
    against the baseline."""
    pairs = []
    for (candidate, row), (other_candidate, other_row) in itertools.combinations(zip(ranked, rows, strict=True), 2):
        if candidate.is_baseline:
            candidate, row, other_candidate, other_row = other_candidate, other_row, candidate, row
        if not other_candidate.is_baseline:
            difference = _difference(design, candidate.summary, other_candidate.summary)
            judged, other_judged = candidate.summary.judged(), other_candidate.summary.judged()
            row = row.model_copy(
                update={
                    "difference": difference,
                    "instability": instability(judged, other_judged, design.comparisons),
                    "conclusion": conclude(difference, judged, other_judged),
                }
            )
        pairs.append(
            CandidatePair(
                candidate=row.candidate,
                other=other_row.candidate,
                title=row.title,
                other_title=other_row.title,
                difference=row.difference,
                conclusion=row.conclusion,
                verdict=verdict(row, other_row, design.loss_unit, design.sample),
            )
        )
    return tuple(pairs)


def evaluation_error(validation_tokens: int | None) -> float:
    """Return the standard error of a difference of two losses by the validation text of so many tokens, which is the
    same for all runs; 0 for tasks of which it was not measured, and which have None."""
    return 0.0 if validation_tokens is None else EVALUATION_ERROR / math.sqrt(validation_tokens)


def _time_to_target(
    design: ComparisonDesign,
    row: CandidateRow,
    summary: CandidateSummary,
    baseline_summary: CandidateSummary,
    curves: Curves,
) -> TimeToTarget | None:
    """Return the time at which the candidate reached the loss at which the baseline's run of the same seed ended,
    whatever the verdict: of better ones alone, speed-ups would be selected by their luck.

    At the last step the interval is that of the difference of losses, so that both say the same."""
    compared, baseline = summary.compared_runs, baseline_summary.compared_runs
    by_seed, baseline_by_seed = (
        {run.seed: run for run in side.compared_records()} for side in (summary, baseline_summary)
    )
    targets = baseline.losses()
    stable = sorted(compared.losses().keys() & targets.keys())
    seeds = [seed for seed in stable if by_seed[seed].id in curves and baseline_by_seed[seed].id in curves]
    if not seeds:
        return None
    runs = [by_seed[seed] for seed in seeds]
    targeted_curves = [(curves[run.id], targets[run.seed]) for run in runs]
    steps, losses = _above_targets(targeted_curves)
    first, last = _bounds_of_step(design, row, baseline_summary.is_at_edge, steps, losses)
    reached_at = first_reached(steps, losses.mean(axis=0).tolist(), 0.0)
    speed_up = None
    if (first, last) != (None, None):
        baseline_steps, baseline_losses = _above_targets(
            [(curves[baseline_by_seed[seed].id], targets[seed]) for seed in seeds]
        )
        baseline_at = first_reached(baseline_steps, baseline_losses.mean(axis=0).tolist(), 0.0) or 0.0
        latest = baseline_steps[-1] if baseline_steps else 0.0
        speed_up = OpenInterval(
            mean=baseline_at / reached_at if reached_at and first else None,  # nobody saw it before an evaluation
            low=baseline_at / last if last else None,
            high=latest / first if first else None,
            n=len(seeds),
        )

    def times(per_step: float = 1.0) -> OpenInterval | None:
        mean, low, high = (None if step is None else step * per_step for step in (reached_at, first, last))
        is_known = (mean, low, high) != (None, None, None)
        return OpenInterval(mean=mean, low=low, high=high, n=len(seeds)) if is_known else None

    return TimeToTarget(
        reached=sum(first_reached(curve.steps, curve.losses, target) is not None for curve, target in targeted_curves),
        n=len(seeds),
        steps=times(),
        tokens=times(statistics.fmean(map(tokens_per_step, runs))),
        device_hours=times(statistics.fmean(device_hours_until(run, 1.0) for run in runs)),
        speed_up=speed_up,
    )


def _above_targets(targeted_curves: Sequence[tuple[ValidationCurve, float]]) -> tuple[list[float], Array]:
    """Return the steps at which all curves were evaluated, and the loss of each run above its target there: [run,
    step], in the unit of the loss."""
    by_step = [dict(zip(curve.steps, curve.losses, strict=True)) for curve, _ in targeted_curves]
    steps = sorted(set.intersection(*(set(losses) for losses in by_step)))
    excesses = np.array(
        [
            [losses[step] - target for step in steps]
            for losses, (_, target) in zip(by_step, targeted_curves, strict=True)
        ]
    )
    return steps, np.where(np.isfinite(excesses), excesses, np.nan)


def _bounds_of_step(
    design: ComparisonDesign, row: CandidateRow, baseline_is_at_edge: bool, steps: Sequence[float], losses: Array
) -> tuple[float | None, float | None]:
    """Return the steps until which the candidate is shown to be above the baseline's final losses, and from which on
    below. Whose best trial lies at an edge might have been sooner."""
    difference = row.difference
    if difference is None or difference.low is None or len(losses) != difference.n:
        return None, None
    comparisons = max(design.comparisons, 1)
    levels = design_looks(design, comparisons)
    n, error = difference.n, difference.evaluation_error
    level = SIGNIFICANCE / comparisons if levels is None else levels[n].level
    half = np.array([half_width(level / 2, n, sd, error) for sd in losses.std(axis=0, ddof=1)])
    mean = losses.mean(axis=0)
    first, last = crossing_bounds(steps, (mean - half).tolist(), (mean + half).tolist())
    return None if row.edge_of_grid else first or None, None if baseline_is_at_edge else last


def tokens_per_step(run: RunRecord) -> float:
    """Return the tokens per step of a run with a result; a damaged specification does not matter for it."""
    return run.result.tokens / run.result.steps if run.result and run.result.steps else 0.0


def device_hours_until(run: RunRecord, steps: float) -> float:
    """Return the device-hours until a step, in proportion to the steps of the run, each of which counts once: the time
    that an attempt lost with its machine is not a time of the optimizer's."""
    seconds = (run.result.productive_seconds if run.result else 0.0) or run.device_seconds
    return seconds / SECONDS_PER_HOUR * steps / run.steps_total


def _row(summary: CandidateSummary) -> CandidateRow:
    """Return the candidate's own line of the leaderboard, without the relation to others."""
    compared = summary.compared_runs
    # Sizes and times are known even where no loss is finite, from whichever runs have a result.
    records = summary.compared_records()
    compared_results = [run.result for run in records if run.result]
    results = compared_results or [run.result for run in summary.records.values() if run.result]
    peaks = [peak for result in results if (peak := result.peak_tensor_bytes()) is not None]
    has_loss = bool(summary.best_trial.losses() or compared.losses())
    ended = [run.device_seconds / SECONDS_PER_HOUR for run in records if run.result]
    measured = [getattr(result, "energy_joules", None) for result in compared_results]
    energies = [float(energy) for energy in measured if energy is not None]
    return CandidateRow(
        candidate=summary.candidate.name,
        optimizer=summary.candidate.optimizer,
        title=summary.candidate.title,
        is_baseline=False,
        best_lr=compared.lr if has_loss else None,
        edge_of_grid=has_loss and summary.is_at_edge,
        val_loss=compared.val_loss(),
        difference=None,
        optimizer_state_bytes=max((result.optimizer_state_bytes for result in results), default=None),
        parameter_bytes=max((result.parameter_bytes for result in results), default=None),
        peak_memory_bytes=max(peaks, default=None),
        peak_memory_kind=TENSORS if peaks else None,
        peak_memory_note=None if peaks else next((result.why_no_peak() for result in results), None),
        step_seconds=median([result.step_seconds_median for result in results]),
        optimizer_seconds=median([result.optimizer_seconds_median for result in results]),
        tokens_per_second=median([result.tokens_per_second for result in results]),
        device_hours=sum(run.device_seconds for run in summary.records.values()) / SECONDS_PER_HOUR,
        verdict="",
        conclusion=Conclusion.NO_LOSS,
        learning_rates=tuple(map(_rate_row, summary.rates)),
        verdicts=dict(Counter(run.verdict for run in summary.runs() if run.verdict is not None)),
        outcomes=dict(Counter(outcome for run in summary.runs() if (outcome := run.outcome()) is not None)),
        final=_rate_row(summary.judging_runs) if summary.judging_runs else None,
        tuning=summary.tuned and summary.judging_runs is None,
        run_device_hours=statistics.fmean(ended) if ended else None,
        energy_joules=statistics.fmean(energies) if energies and len(energies) == len(compared_results) else None,
    )


def _rate_row(rate: SettingRuns) -> LearningRateRow:
    return LearningRateRow(
        lr=rate.lr,
        val_loss=rate.val_loss(),
        runs_ended=sum(run.status in TERMINAL for run in rate.runs),
        runs_total=len(rate.runs),
        diverged=sum(run.verdict is Verdict.DIVERGED for run in rate.runs),
        out_of_memory=sum(run.verdict is Verdict.OUT_OF_MEMORY for run in rate.runs),
        run_ids=tuple(run.id for run in rate.runs),
        lost=len(rate.lost),
        setting=dict(rate.setting),
    )


def device_names(runs: Iterable[RunRecord]) -> str | None:
    """Return the device of all results; several are named side by side."""
    environments = [run.result.environment for run in runs if run.result]
    names = {"cpu" if machine.device == "cpu" else machine.device_name for machine in environments}
    return ", ".join(sorted(names)) or None
