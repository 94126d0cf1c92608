"""Tuning in two phases: which learning rate wins a candidate's grid, and which runs follow from that. Pure functions.

    phase 1: the grid × the tuning seeds ─► all ended ─► best rate at an edge? one more rate beyond it, and again
                                                      └► interior, or enough rates: phase 2, the best rate × the seeds

The seeds of phase 2 are others than those of phase 1: a rate that was chosen because it was lowest on a seed is
flattered by that seed. A candidate goes on as soon as its own runs have ended; nothing depends on another candidate's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from statistics import fmean

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from worker.records.result import Verdict

LARGEST_RATE = 1e6
"""The bound of `worker.spec.run.LearningRate`; a grid is not extended beyond it."""
DIGITS = 12
"""Rates that a grid is extended by are rounded to so many digits, so that 0.004 × 2 is 0.008 in every table."""


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
class Trial:
    """What tuning knows of one run."""

    lr: float
    seed: int
    ended: bool
    verdict: Verdict | None
    """Null while, or if, there is no result."""
    loss: float | None
    """Final validation loss, where it is finite."""


def standing(trials: Sequence[Trial]) -> Standing:
    """The standing of one rate's runs: a mean over the seeds that survived is not a result."""
    losses = sum(trial.loss is not None for trial in trials)
    if not losses:
        return Standing.EMPTY
    if any(trial.verdict not in (None, Verdict.CONVERGED) for trial in trials):
        return Standing.UNSTABLE
    return Standing.COMPLETE if losses == len(trials) else Standing.PARTIAL


def winner(trials: Iterable[Trial]) -> float | None:
    """The rate with the lowest mean loss among those of the best standing; None where no run has a loss."""
    by_rate: dict[float, list[Trial]] = {}
    for trial in trials:
        by_rate.setdefault(trial.lr, []).append(trial)
    ranked = sorted(
        (standing(each), fmean(trial.loss for trial in each if trial.loss is not None), lr)
        for lr, each in by_rate.items()
        if standing(each) is not Standing.EMPTY
    )
    return ranked[0][2] if ranked else None


def rate_beyond_edge(grid: Sequence[float], best: float) -> float | None:
    """The next rate outside of an ascending grid whose best rate is its edge, by the grid's own factor there.

    None where the best rate is interior, the grid has no factor (one rate), or the rate would leave the allowed range.
    """
    if len(grid) < 2 or best not in (grid[0], grid[-1]):
        return None
    rate = best * (grid[-1] / grid[-2] if best == grid[-1] else grid[0] / grid[1])
    rate = float(f"{rate:.{DIGITS}g}")
    return rate if 0 < rate <= LARGEST_RATE and rate not in grid else None


def follow_up(spec: ComparisonSpec, candidate: Candidate, trials: Sequence[Trial]) -> tuple[tuple[float, int], ...]:
    """The (learning rate, seed) pairs to run next, from all runs of the candidate so far; empty while some have not
    ended, without any loss, and when the seeds of phase 2 are there."""
    tuning = spec.tuning
    if tuning is None or not all(trial.ended for trial in trials) or any(trial.seed in spec.seeds for trial in trials):
        return ()
    best = winner(trials)
    if best is None:
        return ()
    grid = sorted({trial.lr for trial in trials})
    if len(grid) - len(candidate.learning_rates) < tuning.extend_grid:
        rate = rate_beyond_edge(grid, best)
        if rate is not None:
            return tuple((rate, seed) for seed in tuning.seeds)
    return tuple((best, seed) for seed in spec.seeds)
