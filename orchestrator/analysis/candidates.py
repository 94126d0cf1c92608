"""A candidate's runs, put together: by learning rate, and at the best one.

Fairness: a mean over the seeds that survived is not a result. A learning rate with a diverged seed ranks behind all
rates without one, one that lacks seeds for another reason behind the complete ones; the same holds for candidates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, hypot, inf, isfinite, sqrt
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.sequential import Array, Look, looks
from orchestrator.analysis.statistics import mean_interval, t_quantile
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.basin import Basin, Grid, basin
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.coordinate_descent import FIRST_STEP, SAME_PLACE, place_of
from orchestrator.kinds.tuning import (
    LARGEST_LOSS,
    SeedCoverage,
    TuningRun,
    best_rate,
    grid_of,
    judged_rate,
    rank_of_rate,
    seed_coverage,
    tried_rates,
)
from orchestrator.kinds.tuning_search import Setting, least_draws
from orchestrator.records import SIGNIFICANCE, Interval, RunRecord
from worker.records.result import Result

Places = NDArray[np.intp]
Regret = Callable[[float, float], float]
"""By the level of an interval, two-sided, and half of its width: how much farther it reaches for a lower loss."""

MISFIT = 0.2
"""Losses about the best setting of a descent that are no parabolas may be lower than these, by such a share of their
rise."""
HALVES = 1000
"""Random halves of a search's draws; the 95 % point of what they move has an error of 0.7 points."""
FROM_HALF_TO_ALL = 1.5
"""How far the difference after all draws lies from its expectation, in multiples of how far a random half of them moves
it, both at 95 %: what errors that comes to is simulated by `benchmarks/searched_verdicts.py` (docs/error-rates.md)."""
BENT = 4.0
"""Standard errors of the curvature along the rate that show a basin. Of a path on a plateau none is that sure, as every
axis has some that is the luckiest: without this, equal optimizers of which one has a narrow valley in a plateau would
be told apart (docs/error-rates.md). It costs power only where the rate hardly matters."""
SURFACE_DRAWS = 1000
"""Of the parabolas after a descent."""
NO_GRID = grid_of(())


def nothing_open(_level: float, _half_width: float) -> float:
    """The regret where nothing is left open, or nothing is known."""
    return 0.0


@dataclass(frozen=True, kw_only=True)
class RateSummary:
    """The seeds of one candidate at one learning rate."""

    lr: float
    runs: tuple[RunRecord, ...]
    coverage: SeedCoverage
    val_loss: Interval | None
    """Over the seeds that are not left out."""
    left_out: frozenset[int] = frozenset()
    """Seeds on which a run spiked, this one's or the one that it is held against."""
    looks: Mapping[int, Look] | None = None
    """Where seeds are added while verdicts are open."""

    def exclude_seeds(self, seeds: frozenset[int]) -> "RateSummary":
        """The same with these seeds left out of its loss."""
        losses = [loss for seed, loss in self.losses().items() if seed not in seeds]
        return replace(self, val_loss=mean_interval(losses, looks=self.looks), left_out=seeds & self.losses().keys())

    def losses(self) -> dict[int, float]:
        """The final validation loss of each seed that has one, as far as it can be squared."""
        return {run.seed: loss for run in self.runs if (loss := _loss(run)) is not None}

    def runs_by_seed(self) -> dict[int, RunRecord]:
        """The runs by their seeds."""
        return {run.seed: run for run in self.runs}

    def results(self) -> tuple[Result, ...]:
        """The results that there are."""
        return tuple(run.result for run in self.runs if run.result is not None)

    def key(self, grid: Grid = NO_GRID) -> tuple[SeedCoverage, float]:
        """Sorts the best first, with what its grid tells of spikes."""
        return rank_of_rate(self.lr, self.coverage, self.val_loss.mean if self.val_loss else 0.0, grid)


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """One candidate over its whole grid."""

    candidate: Candidate
    rates: tuple[RateSummary, ...]
    """The grid, ascending; of a tuned comparison over the tuning seeds."""
    chosen: RateSummary
    """The best rate of the grid; of coverage EMPTY where no run has a finite loss."""
    final: RateSummary | None
    """Phase 2: the seeds at the basin's lowest rate. Null before, and where the grid itself has all seeds."""
    tuned: bool
    grid: Grid
    """The runs of `rates`, complete and without spikes."""
    tried: tuple[float, ...]
    """The rates that say something of the basin: without those of runs that failed or were cancelled."""
    judged_lr: float | None
    """The rate that phase 2 would have by the grid as it is now."""
    planned: tuple[float, ...]
    """The rates that it began with; of a search those of its trials, in their order."""
    settings: Mapping[float, Setting]
    """Of a search, what each trial tries; empty where the rate alone is tuned."""
    places: Mapping[float, tuple[float, ...]]
    """Of a search by coordinate descent, where on its axes each trial lies, the rate's first; empty of others."""
    regret_of_kept_rate: float | None = None
    """What the comparison left open whose rate was kept, infinite where any amount; None where none was kept."""

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
        return len(self.planned)

    def spread(self) -> float | None:
        """Standard deviation of a stable run, as far as the grid tells."""
        means = {} if self.settings else self.grid.means()  # trials of a search have no order
        return self.grid.spread_below(min(means, key=means.__getitem__)) if means else self.grid.spread

    def overtaken_by(self) -> float | None:
        """The rate that the grid asks for now, where runs that were retried have changed it since phase 2 began."""
        if self.final is None or self.judged_lr is None or self.final.lr in (self.judged_lr, self.chosen.lr):
            return None
        began = min(run.created_at for run in self.final.runs)
        ended = [run.ended_at for rate in self.rates for run in rate.runs if run.ended_at is not None]
        # Else another rule chose the rate: that of an earlier version.
        return self.judged_lr if max(ended, default=began) > began else None

    def regret(self, variance: float, degrees: int) -> Regret:
        """How much farther an interval reaches for a loss that may be lower at a better rate than the judged one, as
        far as the grid left that open; 0 without a basin, and of a random search (see `luck_of_draws`). Runs have a
        variance: that of the basin's, and one from the judged runs with so many degrees of freedom, which are the
        grid's own where there is no phase 2. What a basin leaves open joins half of the width that the interval has
        without it (`Gap.extension`)."""
        if self.regret_of_kept_rate is not None:
            kept = self.regret_of_kept_rate if isfinite(self.regret_of_kept_rate) else 0.0
            return lambda _level, _half_width: kept
        if self.places:
            of_trials, of_trials_degrees = self.grid.variance(self.grid.losses.keys())
            pooled = (of_trials * of_trials_degrees + variance * degrees) / max(of_trials_degrees + degrees, 1)
            of_descent = self._regret_of_descent(pooled)
            return nothing_open if of_descent is None else lambda level, _half_width: of_descent(level)
        seen = self._basin
        if seen is None:
            return nothing_open
        of_grid, of_grid_degrees = self.grid.variance(seen.around)
        if self.final is None and of_grid_degrees:
            degrees = 0
        all_degrees = max(of_grid_degrees + degrees, 1)
        pooled = (of_grid * of_grid_degrees + variance * degrees) / all_degrees
        gap = seen.regret(pooled, (self.final or self.chosen).lr)
        return lambda level, half_width: gap.extension(half_width, t_quantile(all_degrees, level / 2))

    def _regret_of_descent(self, variance: float) -> Callable[[float], float] | None:
        """By the level; None where an axis was seen on one side only, or the judged trial is not among the complete
        ones."""
        judged, means = (self.final or self.chosen).lr, self.grid.means()
        rates = [rate for rate in means if rate in self.places]
        if judged not in rates:
            return None
        seeds = len(self.grid.losses[judged])
        at = [self.places[rate] for rate in rates]
        return surface_regret(at, [means[rate] for rate in rates], rates.index(judged), variance / seeds)

    def _bends_along_rates(self) -> bool:
        """Of a descent: whether its trials show that the loss bends upwards along the rate, which no optimizer's fails
        to do over a range that is worth a search. Where they do not, the path has seen a plateau at most, and a valley
        may lie anywhere."""
        means = {rate: mean for rate, mean in self.grid.means().items() if rate in self.places}
        surface = fit_surface([self.places[rate] for rate in means], [*means.values()])
        if surface is None or not surface.curved[0]:
            return False
        variance, _ = self.grid.variance(self.grid.losses.keys())
        seeds = len(next(iter(self.grid.losses.values())))
        place = 1 + len(surface.curved)
        error = sqrt(max(variance / seeds, surface.misfit) * surface.inverse[place, place])
        return bool(surface.coefficients[place] > BENT * error)

    @cached_property
    def _basin(self) -> Basin | None:
        return None if self.settings else basin(self.grid, self.tried)

    def selection(self) -> float | None:
        """By how much the choice of the rate may have flattered the loss, where the seeds that chose it judge it too:
        the mean at the chosen rate, against that of each seed at the rate that the other seeds would have chosen. None
        where other seeds chose, without a choice, or with one seed."""
        rates = [*self.grid.losses.values()]
        if self.tuned or len(rates) < 2 or len(rates[0]) < 2:
            return None
        chosen = min(self.grid.means().values())
        fresh = [min(rates, key=lambda losses: sum(losses.values()) - losses[seed])[seed] for seed in rates[0]]
        return max(fmean(fresh) - chosen, 0.0)

    def rates_have_edges(self) -> bool:
        """Whether the lowest and the highest rate say where a grid ends; those of a search are drawn."""
        return not self.settings

    def rate_is_open(self) -> bool:
        """Whether the best rate lies at the edge of several, or no basin is known: nothing is known of a better one."""
        if self.regret_of_kept_rate is not None:
            return self.regret_of_kept_rate == inf
        if self.places:
            return self.final is not None and (self._regret_of_descent(0.0) is None or not self._bends_along_rates())
        if not self.rates_have_edges() or len(self.rates) == 1 or (self.tuned and self.final is None):
            return False
        return self.chosen in (self.rates[0], self.rates[-1]) or self._basin is None

    def judged_instead_of(self) -> tuple[float, float] | None:
        """The best rate that was tried and the lost one beside it, where one a step back from that is judged. That the
        lowest point of a basin lies between two rates of its grid is no news."""
        seen = self._basin
        if self.final is None or seen is None or seen.lost is None or self.final.lr == self.chosen.lr:
            return None
        if self.overtaken_by() is not None or (self.final.lr - self.chosen.lr) * (seen.lost - self.chosen.lr) > 0:
            return None
        return self.chosen.lr, seen.lost

    def exclude_seeds(self, seeds: frozenset[int]) -> "CandidateSummary":
        """The same with these seeds left out of the compared loss."""
        best = self.best.exclude_seeds(seeds)
        if self.final is not None or self.tuned:
            return replace(self, final=best if self.final else None)
        rates = tuple(best if rate is self.chosen else rate for rate in self.rates)
        return replace(self, rates=rates, chosen=best)


def summaries(spec: ComparisonSpec, runs: Iterable[RunRecord]) -> tuple[CandidateSummary, ...]:
    """Every candidate, in the order of the specification."""
    by_candidate: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_candidate.setdefault(run.candidate, []).append(run)
    return tuple(_summary(spec, each, by_candidate.get(each.name(), [])) for each in spec.candidates)


def spread_of_difference(one: CandidateSummary, other: CandidateSummary) -> float | None:
    """Standard deviation of the difference of two losses of one seed, as far as the grids tell."""
    spreads = one.spread(), other.spread()
    return None if None in spreads else hypot(*(each for each in spreads if each is not None))


def luck_of_draws(one: CandidateSummary, other: CandidateSummary, comparisons: int = 1) -> Callable[[float], float]:
    """By the level: how far other draws may move the difference that two random searches find, either way: by what a
    random half of these does, and half of that more. 0 without a random search, and where two losses answer alike to
    every setting, for draws are the same for both. Infinite where there are too few draws for so many comparisons, and
    where it hangs on halves in which one of the two has no trial that was trained on every seed: without these halves 7
    to 12 % of equal optimizers that diverge at high rates were told apart by 4 to 8 trials, and 19 % of experiments
    with ten were wrong; with them 0 to 1 % (`python -m benchmarks.searched_verdicts --few`).

    The difference is that of the lowest losses which so many draws find in expectation (J. Dodge et al., "Show Your
    Work", EMNLP 2019), not of the lowest there are: few draws say little of these, and an optimizer that must be tuned
    more exactly finds less with an equal budget."""
    count = len(one.planned)
    if not (one.settings and other.settings) or one.places or count != len(other.planned):
        return lambda _level: 0.0
    if count < least_draws(comparisons):
        return lambda _level: inf
    losses = [
        np.array([means.get(rate, np.inf) for rate in each.planned])
        for each in (one, other)
        for means in [each.grid.means()]
    ]
    halves = random_halves(count)
    of_one, of_other = (values[halves].min(axis=1) for values in losses)
    trained = np.isfinite(of_one) & np.isfinite(of_other)
    moved = np.full(HALVES, np.inf)
    moved[trained] = np.abs(of_one[trained] - of_other[trained] - (float(losses[0].min()) - float(losses[1].min())))
    return lambda level: FROM_HALF_TO_ALL * float(np.quantile(moved, max(1 - level, 0.0), method="higher"))


def least_level(one: CandidateSummary, other: CandidateSummary, family_level: float) -> float:
    """The smallest level at which it is known what the tuning of two left open: that of the family, where the regret is
    kept from another comparison of as many; a search tells no more than the share of one of its halves, or draws."""
    kept = any(each.regret_of_kept_rate for each in (one, other))
    if not (one.settings and other.settings):
        return family_level if kept else 0.0
    count = len(one.planned)
    of_search = 1 / SURFACE_DRAWS if one.places else 1 / min(HALVES, comb(count, count // 2))
    return max(of_search, family_level if kept else 0.0)


def random_halves(count: int) -> Places:
    """`HALVES` random halves of so many draws, the smaller ones where their number is odd: [half, place]."""
    return np.argsort(np.random.default_rng(0).random((HALVES, count)), axis=1)[:, : count // 2]


def surface_regret(
    places: Sequence[Sequence[float]],
    losses: Sequence[float],
    judged: int,
    variance: float,
) -> Callable[[float], float] | None:
    """By the level: how far below the loss at the judged trial of a search by coordinate descent the minimum may lie.
    None where too few were trained to tell.

    A parabola for each axis, added, has its minimum within the ranges. Its trials are those that differ from the judged
    one on one axis alone, where these are three places of every axis; else the judged one and those about the lowest
    one where they are, and all where there is none: far from it, and where several axes changed, losses tell of other
    parabolas. It is drawn `SURFACE_DRAWS` times from what the noise, or the misfit where that is larger, leaves
    possible; what holds in all but `level` of them, and a share of each parabola's rise, for a basin that is none. What
    axes do to one another is not in it beyond that misfit.

    `places` [trial, axis] run from -1 to 1; `losses` are means over the seeds, with that variance each.
    """
    at, means = np.array(places, dtype=np.float64), np.array(losses, dtype=np.float64)
    here = at[judged]
    for along in ((np.abs(at - at[trial]) > SAME_PLACE).sum(axis=1) <= 1 for trial in (judged, *np.argsort(means))):
        if min(_count_places(at[along])) > 2:
            along[judged] = True
            at, means = at[along], means[along]
            break
    surface = fit_surface(at, means)
    if surface is None:
        return None
    found, curved = surface.coefficients, surface.curved
    random = np.random.default_rng(0)
    drawn = (
        found
        + sqrt(max(variance, surface.misfit))
        * random.standard_normal((SURFACE_DRAWS, len(found)))
        @ np.linalg.cholesky(surface.inverse).T
    )
    slopes = drawn[:, 1 : 1 + at.shape[1]]
    curvatures = np.zeros_like(slopes)
    curvatures[:, curved] = np.maximum(drawn[:, 1 + at.shape[1] :], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        lowest = np.where(curvatures > 0, -slopes / (2 * curvatures), -np.sign(slopes))
    lowest = np.clip(lowest, -1.0, 1.0)
    gains = slopes * (here - lowest) + curvatures * (here**2 - lowest**2)
    rise = float(np.sum(np.maximum(found[1 + at.shape[1] :], 0.0))) * FIRST_STEP**2
    gain = gains.sum(axis=1)
    return lambda level: float(np.quantile(gain, max(1 - level, 0.0))) + MISFIT * rise


@dataclass(frozen=True, kw_only=True, eq=False)
class Surface:
    """A parabola for each axis, added: c + Σ b_i x_i + Σ a_i x_i², without a_i where an axis was seen at two places."""

    coefficients: Array
    """c, the b of all axes, the a of the curved ones."""
    curved: Array
    """Of each axis, whether it has an a."""
    inverse: Array
    """Of the normal equations: the coefficients' covariance, by the variance of a mean."""
    misfit: float
    """Variance of the means about the surface; 0 without a degree of freedom."""


def fit_surface(places: Sequence[Sequence[float]] | Array, losses: Sequence[float] | Array) -> Surface | None:
    """By least squares; None where the trials are too few, or lie so that they do not tell it. `places` [trial, axis]
    run from -1 to 1."""
    at, means = np.array(places, dtype=np.float64), np.array(losses, dtype=np.float64)
    if len(at) < 2 or min(seen := _count_places(at)) < 2:
        return None
    curved = np.array([count > 2 for count in seen])
    design = np.hstack([np.ones((len(at), 1)), at, at[:, curved] ** 2])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ means
    degrees = len(at) - design.shape[1]
    misfit = float(np.sum((means - design @ found) ** 2)) / degrees if degrees else 0.0
    return Surface(coefficients=found, curved=curved, inverse=inverse, misfit=misfit)


def _count_places(at: Array) -> list[int]:
    """At how many places each axis was seen."""
    return [len(np.unique(np.round(column / SAME_PLACE))) for column in at.T]


def looks_of(spec: ComparisonSpec, comparisons: int = 1) -> Mapping[int, Look] | None:
    """The levels of its looks where it adds seeds, for each of so many intervals; None where all run at once."""
    if spec.sequential is None:
        return None
    if spec.tries_improvement():
        return {}  # seeds go on for another question: no interval of this comparison would hold
    return looks(spec.sequential.first_seeds, len(spec.seeds), SIGNIFICANCE / comparisons)


def _summary(spec: ComparisonSpec, candidate: Candidate, runs: Sequence[RunRecord]) -> CandidateSummary:
    seeds = frozenset(spec.seeds)
    grid_runs = [run for run in runs if run.seed not in seeds] if spec.tuning else runs
    final_runs = tuple(run for run in runs if run.seed in seeds) if spec.tuning else ()
    planned, settings = spec.planned_rates(candidate.name()), spec.settings(candidate.name())
    grid = sorted({*planned, *(run.lr for run in grid_runs)})
    places: Mapping[float, tuple[float, ...]] = {}
    if spec.descends():
        settings = {
            run.lr: spec.searched_parameters(run.position, run.spec) for run in grid_runs if run.spec is not None
        } or settings
        planned = tuple(grid)
        priors = dict(sorted(spec.priors(candidate.name()).items(), key=lambda each: each[0] != "lr"))
        places = {
            lr: tuple(place_of(setting, axis, prior) for axis, prior in priors.items())
            for lr, setting in settings.items()
        }
    own = looks_of(spec)
    of_grid = None if spec.tuning else own
    rates = tuple(_rate(lr, tuple(run for run in grid_runs if run.lr == lr), of_grid) for lr in grid)
    tuning_runs = [_tuning_run(run) for run in grid_runs]
    known = grid_of(tuning_runs)
    return CandidateSummary(
        candidate=candidate,
        rates=rates,
        chosen=min(rates, key=lambda rate: rate.key(known)),
        final=_rate(final_runs[0].lr, final_runs, own) if final_runs else None,
        tuned=spec.tuning is not None,
        grid=known,
        tried=tried_rates(tuning_runs),
        judged_lr=best_rate(tuning_runs) if settings else judged_rate(tuning_runs),
        planned=planned,
        settings=settings,
        places=places,
        regret_of_kept_rate=_regret_of_kept_rate(spec, candidate.name()),
    )


def _regret_of_kept_rate(spec: ComparisonSpec, name: str) -> float | None:
    if spec.kept_rates is None:
        return None
    found = spec.kept_rates.regrets.get(name)
    return inf if found is None else found


def _rate(lr: float, runs: tuple[RunRecord, ...], of: Mapping[int, Look] | None) -> RateSummary:
    losses = [loss for run in runs if (loss := _loss(run)) is not None]
    return RateSummary(
        lr=lr,
        runs=runs,
        coverage=seed_coverage([_tuning_run(run) for run in runs]),
        val_loss=mean_interval(losses, looks=of),
        looks=of,
    )


def _loss(run: RunRecord) -> float | None:
    loss = run.result.final_val_loss if run.result else None
    return loss if loss is not None and abs(loss) <= LARGEST_LOSS else None


def _tuning_run(run: RunRecord) -> TuningRun:
    """What tuning knows of a run."""
    return TuningRun(
        lr=run.lr,
        seed=run.seed,
        ended=run.status in TERMINAL,
        verdict=run.result.verdict if run.result else None,
        loss=run.result.final_val_loss if run.result else None,
    )
