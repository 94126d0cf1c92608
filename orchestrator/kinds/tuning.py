"""Tuning in two phases: which learning rate is judged after a candidate's grid, and which runs follow. Pure functions.

    phase 1: the grid × the tuning seeds ─► all ended ─► best rate at an edge? one more rate beyond it, and again;
                                                         beside one that was lost? one between the two
                                                         far below its neighbours? one between it and the farther one
                                                      └► else, or enough rates: phase 2, the basin's lowest rate × seeds

Rates that phase 1 cannot tell apart lie about the lowest point of one basin (`basin.py`), and that point is judged;
beside a lost rate (runs diverged, most spiked, or scatter far more) one a step back from the best. The
seeds of phase 2 are others than those of phase 1: a rate that was chosen because it was lowest on a seed is flattered
by that seed. A candidate goes on as soon as its own runs have ended; nothing depends on another candidate's.

With `search` phase 1 has settings of several hyperparameters instead of a grid: drawn ones (`tuning_search.py`), or
each after the ones before it (`coordinate_descent.py`). No two of a candidate's have the same rate, so that a rate
stands for its setting; the best setting is judged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf, sqrt
from statistics import fmean
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.kinds import basin
from orchestrator.kinds.coordinate_descent import Descent, descend
from orchestrator.kinds.fields import TuningSeeds
from orchestrator.kinds.tuning_search import Axis, Prior
from worker.records.result import Verdict
from worker.schema import Spec, SpecFault, is_stored, omit_default, raise_faults

LARGEST_RATE = 1e6
"""The bound of `worker.spec.run.LearningRate`; a grid is not extended beyond it."""
LARGEST_LOSS = 1e100
"""Sums of squares of larger ones overflow."""
DIGITS = 12
"""Rates that a grid is extended by are rounded to so many digits, so that 0.004 × 2 is 0.008 in every table."""

TUNING_SEEDS = (1001, 1002, 1003)
"""Of phase 1; far from the seeds that people number their judging runs by."""
EXTEND_GRID = 6
"""An optimum up to six steps beyond a grid is found, or the neighbours of one that lies between rates a factor of ten
apart are halved three times on each side; each rate costs a run for each tuning seed."""
FIRST_FACTOR = 2.0
"""By which a grid of one rate is extended."""
NOISES = 1.5
"""Standard errors of a rate's mean by which the minimum may be missed without a further rate about the best one."""


class SeedCoverage(IntEnum):
    """How much a mean over seeds may say; lower ranks first, whatever the mean is."""

    COMPLETE = 0
    """Every seed has a loss."""
    PARTIAL = 1
    """Some seeds have no loss yet, or lost it to a failure or a cancel."""
    UNSTABLE = 2
    """At least one seed diverged or ran out of memory."""
    EMPTY = 3
    """No seed has a finite loss."""


@dataclass(frozen=True, kw_only=True, order=True)
class TuningGroup:
    """Whose runs are tuned together: a candidate's at one size and budget."""

    candidate: str
    model: str
    steps: int


@dataclass(frozen=True, kw_only=True)
class TuningRun:
    """What tuning knows of one run."""

    lr: float
    seed: int
    ended: bool
    verdict: Verdict | None
    """Null while, or if, there is no result."""
    loss: float | None
    """Final validation loss, where it is finite."""

    def __post_init__(self) -> None:
        """A loss of which no square can be taken is that of a run that diverged, whatever its record says."""
        if self.loss is not None and abs(self.loss) > LARGEST_LOSS:
            object.__setattr__(self, "loss", None)
            object.__setattr__(self, "verdict", Verdict.DIVERGED)


class Tuning(Spec):
    """Two phases: each candidate's grid on seeds of its own, then the lowest rate of each on the seeds that count."""

    seeds: TuningSeeds = TUNING_SEEDS
    """Seeds of phase 1; none of them may be a seed of phase 2, which it would flatter. With one, nothing is known of
    how sure the choice is."""
    extend_grid: Annotated[int, Field(strict=True, ge=0, le=16)] = EXTEND_GRID
    """A candidate gets up to so many rates more, one after another: beyond an edge of its grid until the best one is
    interior; between the best one and a rate whose runs diverged, spiked or scatter; and between the best one and its
    neighbours while their losses rise too far above it to say where the basin is lowest. A single rate is extended by
    factors of two. The table says who did."""
    search: Annotated[tuple[Axis, ...], Field(max_length=6)] = omit_default(())
    """Hyperparameters that are tuned, `lr` among them, instead of the rate alone. Where a candidate gives one rate it
    is the middle of what is searched; where it gives several, all between the lowest and the highest."""
    method: Literal["random", "coordinate"] | None = omit_default(None)
    """How they are searched: `random`: settings drawn around each candidate's own, the same draws for all candidates;
    `coordinate`: one hyperparameter after another, to either side of the best setting so far; at last, on
    each axis, the lowest point between low settings."""
    trials: Annotated[int, Field(strict=True, ge=2, le=256)] | None = omit_default(None)
    """Settings of each candidate, each on every tuning seed. The first one is its own, undrawn."""

    @model_validator(mode="after")
    def _require_whole_search(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, [*self._search_faults()])
        return self

    def _search_faults(self) -> Iterator[SpecFault]:
        if not self.search:
            for name in ("method", "trials"):
                if (value := getattr(self, name)) is not None:
                    yield (name,), value, "needs search: the hyperparameters to tune, such as [lr, beta2, weight_decay]"
            return
        if "lr" not in self.search:
            yield ("search",), list(self.search), "must contain lr: no optimizer is judged at an untuned rate"
        for place, axis in enumerate(self.search):
            if axis in self.search[:place]:
                yield ("search", place), axis, "is given twice; each must differ"
        if self.method is None:
            yield ("method",), None, "must be random or coordinate, where search names what is tuned"
        if self.trials is None:
            yield ("trials",), None, "must be given with search: how many settings each candidate tries"
        elif self.method == "coordinate" and self.trials < (least := 4 + 2 * len(self.search)):
            allowed = (
                f"must be at least {least} with method coordinate: its own setting, both sides of each axis, two about "
                "the best so far, and the lowest point between them"
            )
            yield ("trials",), self.trials, allowed
        if self.extend_grid not in (0, EXTEND_GRID):
            yield ("extend_grid",), self.extend_grid, "must be left out with search: there is no grid to extend"

    def next_pairs(
        self,
        planned_rates: Sequence[float],
        seeds: Sequence[int],
        runs: Sequence[TuningRun],
        next_trials: tuple[tuple[float, int], ...] = (),
        least_open: float = basin.LEAST_OPEN,
    ) -> tuple[tuple[float, int], ...]:
        """The (learning rate, seed) pairs that a candidate runs next, from all of its runs so far; empty while some
        have not ended, without any loss, and when the seeds of phase 2 are there. `next_trials` of a descent come
        first, for as long as any run has ended with a result, be it that it diverged. `least_open`: by how much the
        minimum may be missed without a further rate, in the unit of the losses."""
        if not all(run.ended for run in runs) or any(run.seed in seeds for run in runs):
            return ()
        if next_trials and any(run.verdict is not None for run in runs):
            return next_trials
        best = best_rate(runs)
        if best is None:
            return ()
        if self.search:
            return tuple((best, seed) for seed in seeds)
        grid = sorted({run.lr for run in runs})
        if len(grid) - len(planned_rates) < self.extend_grid:
            rate = rate_beyond_edge(grid, best) or rate_before_cliff(runs, best) or rate_between(runs, least_open)
            if rate is not None and rate not in grid:  # one whose runs failed may lie in the middle of a gap
                return tuple((rate, seed) for seed in self.seeds)
        judged = judged_rate(runs) or best
        return tuple((judged, seed) for seed in seeds)


def descent(priors: Mapping[Axis, Prior], trials: int, runs: Sequence[TuningRun]) -> Descent:
    """The path of a candidate whose runs of phase 1 these are. Which of a few trials is the best is settled by their
    own runs: later ones change no earlier step."""
    by_rate = _group_by_rate(runs)

    def rank(rates: Sequence[float]) -> dict[float, tuple[float, float]]:
        known = {rate: by_rate[rate] for rate in rates if rate in by_rate}
        grid = grid_of(run for each in known.values() for run in each)
        return {rate: _rank(rate, each, grid) for rate, each in known.items()}

    return descend(priors, trials, rank)


def seed_coverage(runs: Sequence[TuningRun]) -> SeedCoverage:
    """That of one rate's runs: a mean over the seeds that survived is not a result."""
    losses = sum(run.loss is not None for run in runs)
    if not losses:
        return SeedCoverage.EMPTY
    if any(run.verdict not in (None, Verdict.CONVERGED) for run in runs):
        return SeedCoverage.UNSTABLE
    return SeedCoverage.COMPLETE if losses == len(runs) else SeedCoverage.PARTIAL


def best_rate(runs: Iterable[TuningRun]) -> float | None:
    """The rate with the lowest mean loss among those of the best coverage; None where no run has a loss. A run that
    spiked counts as what was expected of it: a spike says nothing of its rate alone."""
    grid = grid_of(runs)
    ranked = sorted(
        (*_rank(lr, each, grid), lr)
        for lr, each in _group_by_rate(runs).items()
        if seed_coverage(each) is not SeedCoverage.EMPTY
    )
    return ranked[0][2] if ranked else None


def _rank(lr: float, runs: Sequence[TuningRun], grid: basin.Grid) -> tuple[SeedCoverage, float]:
    losses = [run.loss for run in runs if run.loss is not None]
    return rank_of_rate(lr, seed_coverage(runs), fmean(losses) if losses else inf, grid)


def rank_of_rate(lr: float, coverage: SeedCoverage, mean: float, grid: basin.Grid) -> tuple[SeedCoverage, float]:
    """Sorts the best rate first. Where most runs spiked it ranks as where one diverged."""
    return SeedCoverage.UNSTABLE if lr in grid.spiking() else coverage, grid.means().get(lr, mean)


def grid_of(runs: Iterable[TuningRun]) -> basin.Grid:
    """The rates of which every seed was trained to its end, without the spikes."""
    return basin.grid(
        {
            lr: {run.seed: run.loss for run in each if run.loss is not None}
            for lr, each in _group_by_rate(runs).items()
            if seed_coverage(each) is SeedCoverage.COMPLETE
        }
    )


def judged_rate(runs: Sequence[TuningRun]) -> float | None:
    """The rate for phase 2: the lowest point of the basin about the best rate, a step back from it where it lies beside
    a lost one, or the best rate where it lies at an edge; None where no run has a loss."""
    found = basin.basin(grid_of(runs), tried_rates(runs))
    return best_rate(runs) if found is None else found.rate


def tried_rates(runs: Iterable[TuningRun]) -> tuple[float, ...]:
    """The rates that say something of the basin, ascending: those that were trained on every seed, and those at which a
    run diverged. A run that failed, was cancelled or had too little memory says nothing of its rate."""
    return tuple(
        lr
        for lr, each in sorted(_group_by_rate(runs).items())
        if seed_coverage(each) is SeedCoverage.COMPLETE or _any_diverged(each)
    )


def _any_diverged(runs: Iterable[TuningRun]) -> bool:
    return any(run.verdict is Verdict.DIVERGED for run in runs)


def _group_by_rate(runs: Iterable[TuningRun]) -> dict[float, list[TuningRun]]:
    by_rate: dict[float, list[TuningRun]] = {}
    for run in runs:
        by_rate.setdefault(run.lr, []).append(run)
    return by_rate


def rate_beyond_edge(grid: Sequence[float], best: float) -> float | None:
    """The next rate outside of an ascending grid whose best rate is its edge, by the grid's own factor there; above a
    rate that is alone, by `FIRST_FACTOR`. None where the best rate is interior, or the next one not allowed."""
    if best not in (grid[0], grid[-1]):
        return None
    if len(grid) == 1:
        grid = (best / FIRST_FACTOR, best)
    rate = best * (grid[-1] / grid[-2] if best == grid[-1] else grid[0] / grid[1])
    rate = float(f"{rate:.{DIGITS}g}")
    return rate if 0 < rate <= LARGEST_RATE and rate not in grid else None


def rate_before_cliff(runs: Sequence[TuningRun], best: float) -> float | None:
    """The rate between the best one and a neighbour that was lost (`Grid.is_lost`): such a basin ends in a cliff, and
    its lowest point lies just before it. None where neither was, or the cliff is near."""
    grid = grid_of(runs)
    ordered = sorted({*tried_rates(runs), best})
    place = ordered.index(best)
    for other in reversed(ordered[max(place - 1, 0) : place + 2]):
        if other != best and grid.is_lost(other, best) and max(other / best, best / other) > basin.NEAR:
            return float(f"{sqrt(best * other):.{basin.DIGITS}g}")
    return None


def rate_between(runs: Sequence[TuningRun], least_open: float = basin.LEAST_OPEN) -> float | None:
    """The rate beside the best one at which the loss may be lowest. None where the minimum is missed by no more than
    `least_open`, or than noise: chance would place another rate."""
    known = grid_of(runs)
    found = basin.basin(known, tried_rates(runs))
    if found is None or found.lost is not None:
        return None
    variance, _ = known.variance(found.around)
    below, above, between = found.open_gap(variance)
    least = max(least_open, NOISES * sqrt(variance / known.stable(found.best)))
    if found.regret(0.0).middle <= least or above / below <= basin.NEAR:
        return None
    return float(f"{between:.{basin.DIGITS}g}")
