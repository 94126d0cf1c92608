"""The basin of a candidate's loss over the learning rate: spikes, its lowest point, what missing that may cost. Pure.

    grid runs ─► spikes set apart ─► a convex function of log lr through the means (`convex.py`)
                                         ├► where its minimum is missed by least: the rate that is judged on fresh seeds
                                         ├► where it may be lowest: the next rate of a coarse grid
                                         └► regret: how far below the judged rate's loss the minimum may lie

A grid's best rate misses the minimum by up to half a step, and not all candidates by the same. Nor is it enough to take
the lowest point of a parabola: beside a steep side it lies far from the minimum. Either would tell equal optimizers
apart. All that is assumed is that a loss bends upwards about its minimum; `python -m benchmarks.verdicts` says how
often verdicts err.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.kinds.convex import ConvexFunction, Gap

Losses = Mapping[float, Mapping[int, float]]
"""Final losses by learning rate and seed: the stable runs of one candidate."""

SPIKE = 6.0
"""A run spiked whose loss lies so many spreads above what its rate and its seed let expect: farther than the tails of
Student's t with three degrees of freedom, as heavy as seeds have shown, reach in most grids."""
LEAST_SPIKE = 0.01
"""Nor is anything a spike that is less than 1 % of the loss, or the lowest run of its rate."""
FALSE_SPIKE = 0.03
"""Nor what normal noise does so often to any run of a grid: of few runs the spread is hardly known, and those that are
left when the highest are taken away lie together by choice. Tests hold it to calling a run so in at most 12 % of grids
without spikes, and to finding 80 % of frequent ones among 5 × 3 runs; the others make the noise larger."""
LEAST_DEGREES = 4
"""A spread of fewer degrees of freedom is no measure of what is usual."""
LEAST_SHARE = 1e-9
"""Where losses lie about zero, 1 % of them is nothing: no spike is a smaller share of what they span."""
MORE = 1.5
"""By so much the least spike grows until those that are found are no noise."""
REFITS = 8
"""Rounds in which a table is fitted to its stable runs and these are found anew; it settles in two or three."""
FALSE_SCATTER = 0.001
"""Runs of a rate scatter more than those of others where normal noise does so in as few cases."""
LEAST_SCATTER = 0.005
"""And by so much of the loss at least."""
LEAST_OPEN = 0.003
"""Nats, a third of the margin of equivalence: no further rate is worth its runs where the minimum is missed by less.
Losses without unit may be a thousandth of that or a thousand times as large (`ComparisonSpec.least_open`)."""
NEAR = 1.3
"""Rates within this factor of the best one leave nothing to look for between the two."""
STEP_BACK = 1.5
"""From the best rate beside one that was lost: before a cliff some runs diverge by chance, and one judged run
that does is the end of a verdict (`python -m benchmarks.verdicts --basin chance`)."""
DIGITS = 3
"""A judged rate is rounded to so many digits: by half a per cent at most."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The rates of which every seed has a loss, spikes replaced by what was expected of them."""

    losses: Mapping[float, Mapping[int, float]]
    spikes: frozenset[tuple[float, int]]
    """(rate, seed) of runs that spiked."""
    spread: float | None
    """Standard deviation of a stable run about what its rate and its seed let expect, at the best rate where losses are
    above zero; None where runs are too few."""

    def means(self) -> dict[float, float]:
        """Mean over the seeds."""
        return {rate: fmean(seeds.values()) for rate, seeds in self.losses.items()}

    def spiking(self) -> frozenset[float]:
        """The rates at which most runs spiked: they have no loss, as those at which a run diverged."""
        return frozenset(rate for rate, _ in self.spikes if rate not in self.losses)

    def is_lost(self, rate: float, best: float) -> bool:
        """Whether a rate beside the best one has no loss: a run diverged, most spiked, or it is the higher one and its
        runs scatter more than those at the best rate and below. Such runs spiked, each by a height of its own, and none
        says what a stable one would come to."""
        return rate not in self.losses or (rate > best and self._scatters(rate, best))

    def spread_below(self, best: float) -> float | None:
        """The spread, where rates above the best one scatter that of it and those below."""
        if self.spread is None or not any(self._scatters(rate, best) for rate in self.losses if rate > best):
            return self.spread
        variance, degrees = self.variance([rate for rate in self.losses if rate <= best])
        return self.spread if degrees < LEAST_DEGREES else math.sqrt(variance)

    def _scatters(self, rate: float, best: float) -> bool:
        others = [each for each in self.losses if each <= best]
        stable = [seed for seed in self.losses[rate] if (rate, seed) not in self.spikes]
        table = {each: self.losses[each] for each in (*others, rate)}
        in_logs = min(min(row.values()) for row in table.values()) > 0
        if in_logs:
            table = {each: {seed: math.log(loss) for seed, loss in row.items()} for each, row in table.items()}
        usual, degrees = _variance(table, others, self.spikes)
        if degrees < 1 or len(stable) < 2:
            return False
        above = [table[rate][seed] - fmean(table[each][seed] for each in others) for seed in stable]
        found, usual = stdev(above) ** 2, usual * (1 + 1 / len(others))
        least = LEAST_SCATTER if in_logs else LEAST_SCATTER * abs(fmean(table[rate].values()))
        if found <= max(usual, least**2):
            return False
        from scipy.special import fdtrc  # a fifth of a second, which few rates ask for

        return usual == 0 or float(fdtrc(len(above) - 1, degrees, found / usual)) < FALSE_SCATTER

    def stable(self, rate: float) -> int:
        """How many of a rate's runs did not spike."""
        return len(self.losses[rate]) - sum(spiked == rate for spiked, _ in self.spikes)

    def variance(self, rates: Collection[float]) -> tuple[float, int]:
        """That of a stable run at these rates, and its degrees of freedom; 0 of both where there are none. A rate far
        from the best one, whose runs scatter more, says nothing of those about it."""
        return _variance(self.losses, rates, self.spikes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Basin:
    """What the rates that were trained leave open of the lowest loss."""

    rate: float
    """The learning rate to judge: where the minimum is missed by least, or a step back from the best, beside a lost
    one."""
    best: float
    """The trained rate with the lowest mean."""
    around: tuple[float, ...]
    """It and its neighbours, without a lost one, ascending."""
    lost: float | None
    """The neighbour that has no loss (`Grid.is_lost`): the loss may go on falling up to it."""
    function: "ConvexFunction"
    """The loss over the logarithm of rate / best, towards the lost one."""

    def regret(self, variance: float, seen_from: float | None = None) -> "Gap":
        """How far the minimum may lie below the loss at a rate, the judged one by default, of runs with that variance:
        as far as a convex function's may."""
        return self.function.gap(self._towards() * math.log((seen_from or self.rate) / self.best), variance)

    def open_gap(self, variance: float) -> tuple[float, float, float]:
        """Two neighbouring rates, and the one between them at which the loss may be lowest; not within the outer
        quarters of the gap, where noise would place it too near a trained rate."""
        low, high, place = self.function.open_interval(variance)
        quarter = (high - low) / 4
        place = min(max(place, low + quarter), high - quarter)
        below, above, between = (self.best * math.exp(self._towards() * each) for each in (low, high, place))
        return below, above, between

    def _towards(self) -> int:
        return -1 if self.lost is not None and self.lost < self.best else 1


def grid(losses: Losses) -> Grid:
    """The complete rates of a grid, without its spikes. Logarithms are fitted where all losses are above zero: noise
    grows with them, from rate to rate and from seed to seed."""
    seeds = sorted({seed for row in losses.values() for seed in row})
    rates = [rate for rate in sorted(losses) if len(losses[rate]) == len(seeds)]
    table = [[losses[rate][seed] for seed in seeds] for rate in rates]
    if (len(rates) - 1) * (len(seeds) - 1) < LEAST_DEGREES:
        aligned = {rate: dict(zip(seeds, row, strict=True)) for rate, row in zip(rates, table, strict=True)}
        return Grid(losses=aligned, spikes=frozenset(), spread=None)
    lowest = min(map(min, table))
    in_logs = lowest > 0 and math.isfinite(max(map(max, table)) / lowest)
    found = _stable_fit([[math.log(loss / lowest) for loss in row] for row in table] if in_logs else table, in_logs)

    def expected(i: int, j: int) -> float:
        value = found.levels[i] + found.effects[j]
        return lowest * math.exp(value) if in_logs else value

    spikes = {(i, j) for i, j in found.spikes if table[i][j] > min(table[i])}
    stable = [sum((i, j) not in spikes for j in range(len(seeds))) for i in range(len(rates))]
    kept = {
        rate: {seed: expected(i, j) if (i, j) in spikes else table[i][j] for j, seed in enumerate(seeds)}
        for i, rate in enumerate(rates)
        if 2 * stable[i] >= len(seeds)
    }
    best = min(kept.values(), key=lambda row: fmean(row.values()), default={})
    return Grid(
        losses=kept,
        spikes=frozenset((rates[i], seeds[j]) for i, j in spikes),
        spread=found.spread * (geometric_mean(best.values()) if in_logs and best else 1.0),
    )


def basin(of: Grid, tried: Sequence[float]) -> Basin | None:
    """The basin about the best rate. None where the best of all `tried` rates is at an edge, or beside a lost one and
    alone: nothing is known of what lies beyond."""
    means = of.means()
    if not means:
        return None
    best = min(means, key=lambda rate: (means[rate], rate))
    ordered = sorted(tried)
    place = ordered.index(best)
    if place in (0, len(ordered) - 1):
        return None
    beside = ordered[place - 1 : place + 2]
    lost = next((rate for rate in reversed(beside) if rate != best and of.is_lost(rate, best)), None)
    # Beside a lost rate the loss is that of the best rate's side alone, and goes on towards it.
    rates = [rate for rate in sorted(means) if lost is None or (rate <= best if best < lost else rate >= best)]
    if len(rates) < 2:
        return None
    around = tuple(rate for rate in beside if rate in rates)
    variance, _ = of.variance(around)
    if lost is not None and lost < best:
        rates.reverse()
    function = _function(of, best, rates, variance, lost)
    if lost is not None:
        rate = best / STEP_BACK if best < lost else best * STEP_BACK
        if any(min(best, rate) <= each <= max(best, rate) for each in tried if each not in means):
            rate = best  # runs diverged on this side, too
    else:
        rate = best * math.exp(function.best_place(variance))
    rate = float(f"{rate:.{DIGITS}g}")
    inside = lost is not None or around[0] < rate < around[-1]
    return Basin(rate=rate if inside else best, best=best, around=around, lost=lost, function=function)


def _function(of: Grid, best: float, rates: Sequence[float], variance: float, lost: float | None) -> "ConvexFunction":
    import numpy as np

    from orchestrator.kinds.convex import convex_function

    means = of.means()
    return convex_function(
        np.array([math.log(rate / best) if lost is None else -abs(math.log(rate / best)) for rate in rates]),
        np.array([means[rate] for rate in rates]),
        np.array([float(of.stable(rate)) for rate in rates]),
        variance,
        None if lost is None else abs(math.log(lost / best)),
    )


@dataclass(frozen=True, kw_only=True)
class _StableFit:
    """A table of losses, or of their logarithms, as the sum of a level of each row and an effect of each column,
    without the spikes."""

    levels: list[float]
    effects: list[float]
    spikes: frozenset[tuple[int, int]]
    spread: float


def _stable_fit(table: Sequence[Sequence[float]], in_logs: bool) -> _StableFit:
    """The sum that most runs agree with. A spike lies above what its row and column let expect, never below: so each
    row in turn is the one that the others are held against, in each column the lowest run is taken for stable, and the
    start with the most stable runs is right, be it that medians would take spikes for usual. Where the stable runs are
    too few to tell that these are no noise, only larger ones can be spikes."""
    values = [value for row in table for value in row]
    least = LEAST_SPIKE if in_logs else LEAST_SPIKE * abs(median(values))
    least = max(least, LEAST_SHARE * (max(values) - min(values)))
    while True:
        fits = []
        for start in range(len(table)):
            fits.append(_fit_from(table, start, least))
            if not fits[-1].spikes:  # no start has fewer, and where none spiked they come to the same fit
                return fits[-1]
        telling = [each for each in fits if _are_no_noise(table, each)]
        if telling:
            return min(telling, key=lambda each: (len(each.spikes), each.spread))
        least = max(MORE * least, math.nextafter(least, math.inf))


def _are_no_noise(table: Sequence[Sequence[float]], fit: _StableFit) -> bool:
    """Whether the lowest spike lies higher above the fit than one of as many runs would by noise, by Student's t. What
    lies outside of a fit varies by more than the noise, for the fit does, too."""
    from scipy.special import stdtrit  # a fifth of a second, of which grids without spikes need nothing

    runs, all_degrees = len(table) * len(table[0]), (len(table) - 1) * (len(table[0]) - 1)
    degrees = all_degrees - len(fit.spikes)
    if degrees <= 0:
        return False
    usual = fit.spread * math.sqrt(runs / all_degrees)
    lowest = min(table[i][j] - fit.levels[i] - fit.effects[j] for i, j in fit.spikes)
    return lowest > usual * max(SPIKE, -float(stdtrit(degrees, FALSE_SPIKE / runs / len(fit.spikes))))


def _fit_from(table: Sequence[Sequence[float]], start: int, least: float) -> _StableFit:
    columns = range(len(table[0]))
    levels = [densest([row[j] - table[start][j] for j in columns], least) for row in table]
    effects = [min(row[j] - level for row, level in zip(table, levels, strict=True)) for j in columns]
    spikes: frozenset[tuple[int, int]] | None = None
    spread, limit = 0.0, least
    for _ in range(REFITS):
        found = frozenset(
            (i, j) for i, row in enumerate(table) for j in columns if row[j] - levels[i] - effects[j] > limit
        )
        if found == spikes:
            break
        spikes = found
        stable = [[j for j in columns if (i, j) not in found] for i in range(len(table))]
        for _ in range(REFITS):
            levels = [
                fmean(table[i][j] - effects[j] for j in kept) if kept else levels[i] for i, kept in enumerate(stable)
            ]
            effects = [
                fmean(table[i][j] - levels[i] for i, kept in enumerate(stable) if j in kept)
                if any(j in kept for kept in stable)
                else effects[j]
                for j in columns
            ]
        squares = sum((table[i][j] - levels[i] - effects[j]) ** 2 for i, kept in enumerate(stable) for j in kept)
        degrees = (len(table) - 1) * (len(table[0]) - 1) - len(found)
        spread = math.sqrt(squares / degrees) if degrees > 0 else 0.0
        limit = max(least, SPIKE * spread)
    return _StableFit(levels=levels, effects=effects, spikes=spikes or frozenset(), spread=spread)


def densest(values: Sequence[float], width: float) -> float:
    """The middle one of the most values that lie so close together; of equally many, of the closest."""
    ordered = sorted(values)
    groups = [ordered[first : bisect_right(ordered, low + width)] for first, low in enumerate(ordered)]
    most = min(groups, key=lambda group: (-len(group), group[-1] - group[0]))
    return median(most)


def _variance(losses: Losses, rates: Collection[float], spikes: Collection[tuple[float, int]]) -> tuple[float, int]:
    table: list[list[float]] = [list(losses[rate].values()) for rate in rates]
    spiked = sum(rate in rates for rate, _ in spikes)
    degrees = (len(table) - 1) * (len(table[0]) - 1) - spiked if table else 0
    return (_squares_about_both_means(table) / degrees, degrees) if degrees > 0 else (0.0, 0)


def _squares_about_both_means(table: Sequence[Sequence[float]]) -> float:
    """Sum of squares about what the means of row and column let expect."""
    if not table or not table[0]:
        return 0.0
    rows, columns = [fmean(row) for row in table], [fmean(column) for column in zip(*table, strict=True)]
    whole = fmean(rows)
    return sum(
        (value - rows[i] - columns[j] + whole) ** 2 for i, row in enumerate(table) for j, value in enumerate(row)
    )
