"""Tuning in two phases: which learning rate is judged after a candidate's grid, and which runs follow. Pure functions.

    phase 1: the grid × the tuning seeds ─► all ended ─► best rate at an edge? one more rate beyond it, and again;
                                                         beside one that diverged? one between the two
                                                      └► else, or enough rates: phase 2, the basin's lowest rate × seeds

Rates that phase 1 cannot tell apart lie about the lowest point of one basin (`basin.py`), and that point is judged. The
seeds of phase 2 are others than those of phase 1: a rate that was chosen because it was lowest on a seed is flattered
by that seed. A candidate goes on as soon as its own runs have ended; nothing depends on another candidate's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import sqrt
from statistics import fmean

from orchestrator.kinds import basin
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from worker.records.result import Verdict

LARGEST_RATE = 1e6
"""The bound of `worker.spec.run.LearningRate`; a grid is not extended beyond it."""
DIGITS = 12
"""Rates that a grid is extended by are rounded to so many digits, so that 0.004 × 2 is 0.008 in every table."""

CLIFF = 1.3
"""A rate that diverged within this factor of the best one leaves nothing to look for between the two."""


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
    """The rate with the lowest mean loss among those of the best standing; None where no run has a loss. A run that
    spiked counts as what was expected of it: a spike says nothing of its rate alone."""
    by_rate = _by_rate(trials)
    expected = grid_of(trials).means()
    ranked = sorted(
        (standing(each), expected.get(lr, fmean(trial.loss for trial in each if trial.loss is not None)), lr)
        for lr, each in by_rate.items()
        if standing(each) is not Standing.EMPTY
    )
    return ranked[0][2] if ranked else None


def grid_of(trials: Iterable[Trial]) -> basin.Grid:
    """The rates of which every seed was trained to its end, without the spikes."""
    return basin.grid(
        {
            lr: {trial.seed: trial.loss for trial in each if trial.loss is not None}
            for lr, each in _by_rate(trials).items()
            if standing(each) is Standing.COMPLETE
        }
    )


def judged_rate(trials: Sequence[Trial]) -> float | None:
    """The rate for phase 2: the lowest point of the basin about the best rate, or the best rate where it has not two
    trained neighbours; None where no run has a loss."""
    found = basin.basin(grid_of(trials), sorted(_by_rate(trials)))
    return winner(trials) if found is None else found.vertex


def _by_rate(trials: Iterable[Trial]) -> dict[float, list[Trial]]:
    by_rate: dict[float, list[Trial]] = {}
    for trial in trials:
        by_rate.setdefault(trial.lr, []).append(trial)
    return by_rate


def rate_beyond_edge(grid: Sequence[float], best: float) -> float | None:
    """The next rate outside of an ascending grid whose best rate is its edge, by the grid's own factor there.

    None where the best rate is interior, the grid has no factor (one rate), or the rate would leave the allowed range.
    """
    if len(grid) < 2 or best not in (grid[0], grid[-1]):
        return None
    rate = best * (grid[-1] / grid[-2] if best == grid[-1] else grid[0] / grid[1])
    rate = float(f"{rate:.{DIGITS}g}")
    return rate if 0 < rate <= LARGEST_RATE and rate not in grid else None


def rate_before_cliff(trials: Sequence[Trial], best: float) -> float | None:
    """The rate between the best one and a neighbour that lost a seed: such a basin ends in a cliff, and its lowest
    point lies just before it. None where both neighbours were trained, or the cliff is near."""
    by_rate = _by_rate(trials)
    ordered = sorted(by_rate)
    place = ordered.index(best)
    for other in ordered[max(place - 1, 0) : place + 2]:
        if standing(by_rate[other]) in (Standing.UNSTABLE, Standing.EMPTY) and max(other / best, best / other) > CLIFF:
            return float(f"{sqrt(best * other):.{basin.DIGITS}g}")
    return None


def follow_up(spec: ComparisonSpec, candidate: Candidate, trials: Sequence[Trial]) -> tuple[tuple[float, int], ...]:
    """The (learning rate, seed) pairs to run next, from all runs of the candidate so far; empty while some have not
    ended, without any loss, and when the seeds of phase 2 are there."""
    tuning = spec.tuning
    if tuning is None or not all(trial.ended for trial in trials) or any(trial.seed in spec.seeds for trial in trials):
        return ()
    best = winner(trials)
    if best is None:
        return ()
    rates = sorted({trial.lr for trial in trials})
    if len(rates) - len(candidate.learning_rates) < tuning.extend_grid:
        rate = rate_beyond_edge(rates, best) or rate_before_cliff(trials, best)
        if rate is not None:
            return tuple((rate, seed) for seed in tuning.seeds)
    judged = judged_rate(trials) or best
    return tuple((judged, seed) for seed in spec.seeds)
