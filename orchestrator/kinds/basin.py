"""The basin of a candidate's loss over the learning rate: spikes, its lowest point, what missing that may cost. Pure.

    grid runs ─► spikes set apart ─► a parabola in log lr through the best rate and its neighbours
                                         ├► its vertex: the rate that is judged on fresh seeds
                                         └► regret: how far below the judged rate's loss the minimum may lie

A grid's best rate misses the minimum by up to half a step, and not all candidates by the same: with rates a factor of
two apart, of which a step from the optimum costs 0.05 nats, two equal optimizers were told apart in half of all
experiments (10 judging seeds; `python -m benchmarks.verdicts`). The vertex misses it in second order only: by the
square of an error in log lr.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

Losses = Mapping[float, Mapping[int, float]]
"""Final losses by learning rate and seed: the stable runs of one candidate."""

SPIKE = 6.0
"""A run spiked whose loss lies so many spreads above what its rate and its seed let expect. Of runs with noise of
Student's t with three degrees of freedom, as heavy a tail as seeds have shown, one in 5,000 is called so."""
LEAST_SPIKE = 0.01
"""Nor is anything a spike that is less than 1 % of the loss."""
LEAST_DEGREES = 4
"""A spread of fewer degrees of freedom is no measure of what is usual."""
REFITS = 8
"""Rounds in which a table is fitted to its stable runs and these are found anew; it settles in two or three."""
BOUND = 1.96
"""Standard errors of a slope at its 95 % bound."""
LEAST_RISE = 0.01
"""Nats, the margin of equivalence: what rises by less within reach of its lowest point hides little between rates."""
NEAR = 1.3
"""Rates within this factor of the best one leave nothing to look for between the two."""
MISFIT = 0.2
"""A basin that is no parabola may be lower than the parabola says, by such a share of its rise. One with a kink that is
as steep on either side is, by 0.12 at most between equal gaps. Equal optimizers with lopsided kinks were told apart
in 6 to 7 % of experiments with 10 judging seeds with 0.1 of the rise, in 4 to 6 % with 0.15, in 1 to 4 % with 0.2."""
STEP_BACK = 1.5
"""From the best rate beside one that was lost: before a cliff some runs diverge by chance. Where their odds rise by e
with each tenth of a factor of two, a judged run of two equal optimizers with 10 seeds diverged in 69 % of experiments
without a step back, in 11 % after 1.3, in 5 % after 1.5."""
DIGITS = 3
"""A vertex is rounded to so many digits; 0.5 % of a rate cost nothing that can be measured."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The rates of which every seed has a loss, spikes replaced by what was expected of them."""

    losses: Mapping[float, Mapping[int, float]]
    spikes: frozenset[tuple[float, int]]
    """(rate, seed) of runs that spiked."""
    spread: float | None
    """Standard deviation of a stable run about what its rate and its seed let expect; None where runs are too few."""

    def means(self) -> dict[float, float]:
        """Mean over the seeds."""
        return {rate: fmean(seeds.values()) for rate, seeds in self.losses.items()}

    def stable(self, rate: float) -> int:
        """How many of a rate's runs did not spike."""
        return len(self.losses[rate]) - sum(spiked == rate for spiked, _ in self.spikes)

    def variance(self, rates: Collection[float]) -> tuple[float, int]:
        """That of a stable run at these rates, and its degrees of freedom; 0 of both where there are none. A rate far
        from the best one, whose runs scatter more, says nothing of those about it."""
        table: list[list[float]] = [list(self.losses[rate].values()) for rate in rates]
        spiked = sum(rate in rates for rate, _ in self.spikes)
        degrees = (len(table) - 1) * (len(table[0]) - 1) - spiked if table else 0
        return (_squares_about_both_means(table) / degrees, degrees) if degrees > 0 else (0.0, 0)


@dataclass(frozen=True, kw_only=True)
class Basin:
    """The parabola through the best rate and its neighbours, in log lr, seen from one rate."""

    vertex: float
    """The learning rate at which it is lowest."""
    curvature: float
    """Nats by squared log lr, at least 0."""
    slope: float
    """Nats by log lr, at the rate from which it is seen."""
    weight: float
    """Variance of `slope` for a unit variance of a run."""
    reach: float
    """Half of its width, in log lr."""
    rates: tuple[float, ...]
    """Those that it goes through."""

    def rise(self) -> float:
        """How far the parabola rises from its lowest point within reach."""
        return self.curvature * self.reach**2

    def is_coarse(self) -> bool:
        """Whether the rates that it goes through are too far apart, for how far they rise, to say where between them
        the loss is lowest."""
        return self.rise() > LEAST_RISE and self.reach > math.log(NEAR)

    def regret(self, variance: float) -> float:
        """How far the minimum may lie below the loss at the rate from which it is seen: what the slope's 95 % bound
        leaves open, within reach, and by how much a basin that is no parabola may be lower: of a coarse one, by all
        that it rises above `LEAST_RISE` too. Runs have that variance."""
        misfit = MISFIT * self.rise() + (self.rise() - LEAST_RISE if self.is_coarse() else 0.0)
        steepest = abs(self.slope) + BOUND * math.sqrt(self.weight * variance)
        if steepest >= 2 * self.curvature * self.reach:
            return (steepest - self.curvature * self.reach) * self.reach + misfit
        return steepest**2 / (4 * self.curvature) + misfit


def grid(losses: Losses) -> Grid:
    """The complete rates of a grid, without its spikes."""
    seeds = sorted({seed for row in losses.values() for seed in row})
    rates = [rate for rate in sorted(losses) if len(losses[rate]) == len(seeds)]
    table = [[losses[rate][seed] for seed in seeds] for rate in rates]
    if (len(rates) - 1) * (len(seeds) - 1) < LEAST_DEGREES:
        return Grid(losses={rate: losses[rate] for rate in rates}, spikes=frozenset(), spread=None)
    found = _stable_fit(table)
    stable = [sum((i, j) not in found.spikes for j in range(len(seeds))) for i in range(len(rates))]
    return Grid(
        losses={
            rate: {
                seed: found.levels[i] + found.effects[j] if (i, j) in found.spikes else table[i][j]
                for j, seed in enumerate(seeds)
            }
            for i, rate in enumerate(rates)
            if 2 * stable[i] > len(seeds)
        },
        spikes=frozenset((rates[i], seeds[j]) for i, j in found.spikes),
        spread=found.spread,
    )


def basin(of: Grid, tried: Sequence[float], seen_from: float | None = None) -> Basin | None:
    """The basin about the best rate, seen from there or from another rate. None where the best of all `tried` rates is
    at an edge: nothing is known of what lies beyond."""
    means = of.means()
    if not means:
        return None
    best = min(means, key=lambda rate: (means[rate], rate))
    ordered = sorted(tried)
    place = ordered.index(best)
    if place in (0, len(ordered) - 1):
        return None
    around = ordered[place - 1 : place + 2]
    if any(rate not in means for rate in around):
        return _cliff(of, best, next(rate for rate in reversed(around) if rate not in means))
    at = [math.log(rate / best) for rate in around]
    # Derivatives at x of Lagrange's polynomials: the slope there is their sum, weighted by the losses.
    spans = [(at[i] - at[j]) * (at[i] - at[k]) for i, j, k in ((0, 1, 2), (1, 0, 2), (2, 0, 1))]
    others = [(at[1], at[2]), (at[0], at[2]), (at[0], at[1])]
    values = [means[rate] - means[best] for rate in around]
    curvature = sum(value / span for value, span in zip(values, spans, strict=True))
    slope = -sum(value * sum(other) / span for value, other, span in zip(values, others, spans, strict=True))
    x = 0.0 if curvature <= 0 else -slope / (2 * curvature)
    vertex = best if x == 0 else float(f"{best * math.exp(x):.{DIGITS}g}")
    eye = math.log((seen_from or vertex) / best)
    weights = [(2 * eye - sum(other)) / span for other, span in zip(others, spans, strict=True)]
    return Basin(
        vertex=vertex if around[0] < vertex < around[2] else best,
        curvature=max(curvature, 0.0),
        slope=sum(weight * value for weight, value in zip(weights, values, strict=True)),
        weight=sum(weight**2 / of.stable(rate) for weight, rate in zip(weights, around, strict=True)),
        reach=(at[2] - at[0]) / 2,
        rates=tuple(around),
    )


def _cliff(of: Grid, best: float, lost: float) -> Basin | None:
    """Beside a rate that was lost, the loss may go on falling up to it as it fell to the best one. The slope is taken
    over twice the gap, where the grid goes so far: over less it would be noise. None where there is no other rate.

    A rate is of use where it keeps a distance to those at which runs diverge: the vertex lies a step back from the best
    rate, and the lowest rate of use as far above it as the lost rate lies above the best one."""
    means, gap = of.means(), abs(math.log(lost / best))
    distances = {rate: abs(math.log(rate / best)) for rate in means if (rate < best) is (best < lost) and rate != best}
    if not distances:
        return None
    base = min(distances, key=lambda rate: (distances[rate] < 2 * gap, abs(distances[rate] - 2 * gap)))
    run = math.log(best / base)
    back = best / STEP_BACK if best < lost else best * STEP_BACK
    return Basin(
        vertex=float(f"{back:.{DIGITS}g}"),
        curvature=0.0,
        slope=(means[best] - means[base]) / run,
        weight=(1 / of.stable(best) + 1 / of.stable(base)) / run**2,
        reach=gap,
        rates=(base, best),
    )


@dataclass(frozen=True, kw_only=True)
class _StableFit:
    """A table of losses as the sum of a level of each row and an effect of each column, without the spikes."""

    levels: list[float]
    effects: list[float]
    spikes: frozenset[tuple[int, int]]
    spread: float


def _stable_fit(table: Sequence[Sequence[float]]) -> _StableFit:
    """The sum that most runs agree with. A spike lies above what its row and column let expect, never below: so each
    row in turn is the one that the others are held against, in each column the lowest run is taken for stable, and the
    start with the most stable runs is right, be it that medians would take spikes for usual. As many spikes as there
    are degrees of freedom leave no spread that they could lie above: noise was called so, and less is none now."""
    least = LEAST_SPIKE * abs(median(value for row in table for value in row))
    while True:
        fits = []
        for start in range(len(table)):
            fits.append(_fit_from(table, start, least))
            if not fits[-1].spikes:  # no start has fewer, and where none spiked they come to the same fit
                return fits[-1]
        found = min(fits, key=lambda each: (len(each.spikes), each.spread))
        if len(found.spikes) < (len(table) - 1) * (len(table[0]) - 1):
            return found
        least *= 2


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


def _squares_about_both_means(table: Sequence[Sequence[float]]) -> float:
    """Sum of squares about what the means of row and column let expect."""
    if not table or not table[0]:
        return 0.0
    rows, columns = [fmean(row) for row in table], [fmean(column) for column in zip(*table, strict=True)]
    whole = fmean(rows)
    return sum(
        (value - rows[i] - columns[j] + whole) ** 2 for i, row in enumerate(table) for j, value in enumerate(row)
    )
