"""A candidate's runs, put together: by learning rate, and at the best one.

Fairness: a mean over the seeds that survived is not a result. A learning rate with a diverged seed ranks behind all
rates without one, one that lacks seeds for another reason behind the complete ones; the same holds for candidates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.statistics import mean_interval
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import SeedCoverage, TuningRun, seed_coverage
from orchestrator.records import Interval, RunRecord
from worker.records.result import Result


@dataclass(frozen=True, kw_only=True)
class RateSummary:
    """The seeds of one candidate at one learning rate."""

    lr: float
    runs: tuple[RunRecord, ...]
    coverage: SeedCoverage
    val_loss: Interval | None

    def losses(self) -> dict[int, float]:
        """The final validation loss of each seed that has a finite one."""
        return {run.seed: loss for run in self.runs if run.result and (loss := run.result.final_val_loss) is not None}

    def by_seed(self) -> dict[int, RunRecord]:
        """The runs by their seeds."""
        return {run.seed: run for run in self.runs}

    def results(self) -> tuple[Result, ...]:
        """The results that there are."""
        return tuple(run.result for run in self.runs if run.result is not None)

    def key(self) -> tuple[int, float]:
        """Sorts the best first."""
        return self.coverage, self.val_loss.mean if self.val_loss else 0.0


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """One candidate over its whole grid."""

    candidate: Candidate
    rates: tuple[RateSummary, ...]
    """The grid, ascending; of a tuned comparison over the tuning seeds."""
    chosen: RateSummary
    """The best rate of the grid; of coverage EMPTY where no run has a finite loss."""
    final: RateSummary | None
    """Phase 2: the seeds at the best rate. Null before, and where the grid itself has all seeds."""
    tuned: bool

    @property
    def best(self) -> RateSummary:
        """The runs that are compared: those of phase 2 where there is one, and none before it begins."""
        if self.final is not None or not self.tuned:
            return self.final or self.chosen
        return RateSummary(lr=self.chosen.lr, runs=(), coverage=SeedCoverage.EMPTY, val_loss=None)

    def runs(self) -> tuple[RunRecord, ...]:
        """Every run of the candidate."""
        grid = tuple(run for rate in self.rates for run in rate.runs)
        return grid if self.final is None else (*grid, *self.final.runs)

    def planned_rates(self) -> int:
        """The size of the grid before its edge was followed: that rule is the same for all and favours nobody."""
        return len(self.candidate.learning_rates)

    def overtaken_by(self) -> float | None:
        """The rate that leads the grid now, where runs that were retried have changed it since phase 2 began."""
        moved = self.final is not None and self.chosen.coverage is not SeedCoverage.EMPTY
        return self.chosen.lr if moved and self.final and self.chosen.lr != self.final.lr else None

    def key(self) -> tuple[int, float, int, float]:
        """Sorts the best first; while nothing can be compared, by what tuning found so far."""
        return *self.best.key(), *self.chosen.key()


def summaries(spec: ComparisonSpec, runs: Iterable[RunRecord]) -> tuple[CandidateSummary, ...]:
    """Every candidate, the best first."""
    by_candidate: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_candidate.setdefault(run.candidate, []).append(run)
    found = (_summary(spec, each, by_candidate.get(each.name(), [])) for each in spec.candidates)
    return tuple(sorted(found, key=lambda each: each.key()))


def _summary(spec: ComparisonSpec, candidate: Candidate, runs: Sequence[RunRecord]) -> CandidateSummary:
    seeds = frozenset(spec.seeds)
    grid_runs = [run for run in runs if run.seed not in seeds] if spec.tuning else runs
    final_runs = tuple(run for run in runs if run.seed in seeds) if spec.tuning else ()
    grid = sorted({*candidate.learning_rates, *(run.lr for run in grid_runs)})
    rates = tuple(_rate(lr, tuple(run for run in grid_runs if run.lr == lr)) for lr in grid)
    return CandidateSummary(
        candidate=candidate,
        rates=rates,
        chosen=min(rates, key=lambda rate: rate.key()),
        final=_rate(final_runs[0].lr, final_runs) if final_runs else None,
        tuned=spec.tuning is not None,
    )


def _rate(lr: float, runs: tuple[RunRecord, ...]) -> RateSummary:
    losses = [run.result.final_val_loss for run in runs if run.result and run.result.final_val_loss is not None]
    return RateSummary(
        lr=lr, runs=runs, coverage=seed_coverage([_tuning_run(run) for run in runs]), val_loss=mean_interval(losses)
    )


def _tuning_run(run: RunRecord) -> TuningRun:
    """What tuning knows of a run."""
    return TuningRun(
        lr=run.lr,
        seed=run.seed,
        ended=run.status in TERMINAL,
        verdict=run.result.verdict if run.result else None,
        loss=run.result.final_val_loss if run.result else None,
    )
