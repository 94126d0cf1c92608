"""The answer to a comparison: records in, leaderboard out. A pure function; nothing here reads a store.

    runs ─► for each candidate × learning rate: the mean over seeds ─► each candidate at its best rate
         ─► differences to the baseline, paired by seed, corrected by Holm ─► verdicts and notes that claim no more

Fairness: a mean over the seeds that survived is not a result. A learning rate with a diverged seed ranks behind all
rates without one, one that lacks seeds for another reason behind the complete ones; the same holds for candidates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from optim import catalog
from orchestrator.experiments import Candidate
from orchestrator.jobs import TERMINAL
from orchestrator.records import (
    CandidateRow,
    Comparison,
    Difference,
    ExperimentRecord,
    Interval,
    LearningRateRow,
    RunRecord,
)
from orchestrator.statistics import holm, mean_interval, median, paired_difference
from orchestrator.verdicts import notes, verdict
from worker.record import PeakMemory, Result, Verdict

SECONDS_PER_HOUR = 3600.0


class Standing(IntEnum):
    """How much a mean over seeds may say; lower ranks first, whatever the mean is."""

    COMPLETE = 0
    """Every seed has a loss."""
    PARTIAL = 1
    """Some seeds have no loss yet, or lost it to a failure or a cancel."""
    UNSTABLE = 2
    """At least one seed diverged or ran out of memory."""
    EMPTY = 3
    """No seed has a finite loss."""


@dataclass(frozen=True, kw_only=True)
class RateSummary:
    """All seeds of one candidate at one learning rate."""

    lr: float
    runs: tuple[RunRecord, ...]
    standing: Standing
    val_loss: Interval | None

    def losses(self) -> dict[int, float]:
        """The final validation loss of each seed that has a finite one."""
        return {run.seed: loss for run in self.runs if run.result and (loss := run.result.final_val_loss) is not None}

    def results(self) -> tuple[Result, ...]:
        """The results that there are."""
        return tuple(run.result for run in self.runs if run.result is not None)

    def key(self) -> tuple[int, float]:
        """Sorts the best first."""
        return self.standing, self.val_loss.mean if self.val_loss else 0.0


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """One candidate over its whole grid."""

    candidate: Candidate
    rates: tuple[RateSummary, ...]
    best: RateSummary
    """The best rate; of standing EMPTY where no run has a finite loss."""

    def runs(self) -> tuple[RunRecord, ...]:
        """Every run of the candidate."""
        return tuple(run for rate in self.rates for run in rate.runs)


def compare(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> Comparison:
    """The leaderboard of a comparison from all of its runs, ended or not; best first, without a finite loss last."""
    runs = tuple(runs)
    summaries = sorted(
        (_summary(candidate, runs) for candidate in experiment.spec.candidates), key=lambda each: each.best.key()
    )
    baseline_name = experiment.spec.baseline_name()
    baseline = next(each for each in summaries if each.candidate.name() == baseline_name)
    memory = _memory_kind([run.result for run in runs if run.result])
    differences = _differences(summaries, baseline)
    silent = [_row(each, each is baseline, found, memory) for each, found in zip(summaries, differences, strict=True)]
    baseline_row = next(row for row in silent if row.is_baseline)
    rows = tuple(row.model_copy(update={"verdict": verdict(row, baseline_row)}) for row in silent)
    return Comparison(
        experiment_id=experiment.id,
        name=experiment.name,
        complete=all(run.status in TERMINAL for run in runs),
        baseline=baseline_name,
        device=_device(runs),
        rows=rows,
        notes=notes(experiment.spec, runs, rows),
    )


def _summary(candidate: Candidate, runs: Iterable[RunRecord]) -> CandidateSummary:
    mine = [run for run in runs if run.candidate == candidate.name()]
    rates = tuple(_rate(lr, tuple(run for run in mine if run.lr == lr)) for lr in sorted(candidate.learning_rates))
    return CandidateSummary(candidate=candidate, rates=rates, best=min(rates, key=lambda rate: rate.key()))


def _rate(lr: float, runs: tuple[RunRecord, ...]) -> RateSummary:
    losses = [run.result.final_val_loss for run in runs if run.result and run.result.final_val_loss is not None]
    val_loss = mean_interval(losses)
    if val_loss is None:
        standing = Standing.EMPTY
    elif any(run.result and run.result.verdict is not Verdict.CONVERGED for run in runs):
        standing = Standing.UNSTABLE
    else:
        standing = Standing.COMPLETE if len(losses) == len(runs) else Standing.PARTIAL
    return RateSummary(lr=lr, runs=runs, standing=standing, val_loss=val_loss)


def _differences(summaries: Sequence[CandidateSummary], baseline: CandidateSummary) -> tuple[Difference | None, ...]:
    """Each candidate's paired difference to the baseline, both at their best rates, corrected over the candidates."""
    raw = [None if each is baseline else _difference(each.best, baseline.best) for each in summaries]
    corrected = holm([each.p_value if each else None for each in raw])
    return tuple(
        each and each.model_copy(update={"p_value_holm": p_value}) for each, p_value in zip(raw, corrected, strict=True)
    )


def _difference(best: RateSummary, baseline: RateSummary) -> Difference | None:
    """Over the seeds that both have; None where a seed of either diverged: survivors are not compared."""
    if Standing.UNSTABLE in (best.standing, baseline.standing):
        return None
    mine, theirs = best.losses(), baseline.losses()
    seeds = sorted(mine.keys() & theirs.keys())
    return paired_difference([mine[seed] for seed in seeds], [theirs[seed] for seed in seeds])


def _row(
    each: CandidateSummary, is_baseline: bool, difference: Difference | None, memory: "MemoryKind"
) -> CandidateRow:
    """One line of the leaderboard, its verdict still to be said."""
    best = each.best
    grid = sorted(each.candidate.learning_rates)
    # Sizes and times are known even where no loss is finite, from whichever runs have a result.
    results = best.results() or tuple(run.result for run in each.runs() if run.result)
    peaks = [peak for result in results if (peak := memory.read(result.peak_memory)) is not None]
    has_loss = best.standing is not Standing.EMPTY
    return CandidateRow(
        candidate=each.candidate.name(),
        optimizer=each.candidate.optimizer,
        title=each.candidate.label or catalog.entry(each.candidate.optimizer).title,
        is_baseline=is_baseline,
        best_lr=best.lr if has_loss else None,
        edge_of_grid=has_loss and best.lr in (grid[0], grid[-1]),
        val_loss=best.val_loss,
        difference=difference,
        optimizer_state_bytes=max((result.optimizer_state_bytes for result in results), default=None),
        parameter_bytes=max((result.parameter_bytes for result in results), default=None),
        peak_memory_bytes=max(peaks, default=None),
        peak_memory_kind=memory.name if peaks else None,
        step_seconds=median([result.step_seconds_median for result in results]),
        optimizer_seconds=median([result.optimizer_seconds_median for result in results]),
        tokens_per_second=median([result.tokens_per_second for result in results]),
        device_hours=sum(run.device_seconds for run in each.runs()) / SECONDS_PER_HOUR,
        verdict="",
        learning_rates=tuple(_rate_row(rate) for rate in each.rates),
        verdicts=dict(Counter(run.result.verdict for run in each.runs() if run.result)),
    )


def _rate_row(rate: RateSummary) -> LearningRateRow:
    return LearningRateRow(
        lr=rate.lr,
        val_loss=rate.val_loss,
        runs_ended=sum(run.status in TERMINAL for run in rate.runs),
        runs_total=len(rate.runs),
        diverged=sum(result.verdict is Verdict.DIVERGED for result in rate.results()),
        out_of_memory=sum(result.verdict is Verdict.OUT_OF_MEMORY for result in rate.results()),
        run_ids=tuple(run.id for run in rate.runs),
    )


@dataclass(frozen=True, kw_only=True)
class MemoryKind:
    """One of the three quantities that are called peak memory."""

    name: str
    read: Callable[[PeakMemory], int | None]


MEMORY_KINDS = (
    MemoryKind(name="allocator", read=lambda peak: peak.allocator_bytes),
    MemoryKind(name="NVML process", read=lambda peak: peak.nvml_process_bytes),
    MemoryKind(name="host RSS", read=lambda peak: peak.host_rss_bytes),
)


def _memory_kind(results: Sequence[Result]) -> MemoryKind:
    """The first kind that every result has: one table shows one quantity."""
    return next(kind for kind in MEMORY_KINDS if all(kind.read(result.peak_memory) is not None for result in results))


def _device(runs: Iterable[RunRecord]) -> str | None:
    """The device of all results; several are named side by side."""
    environments = [run.result.environment for run in runs if run.result]
    names = {"cpu" if each.device == "cpu" else each.device_name for each in environments}
    return ", ".join(sorted(names)) or None
