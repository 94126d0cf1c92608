"""What a convex function may be between the points at which it was measured, with noise.

    from above: the chord between two neighbours          ╲                  ╱
    from below: the chords beside it, drawn out            ╲╲              ╱╱
                                                            ╲ ╲__________╱ ╱   above
                                                             ╲  ╲      ╱  ╱    below
                                                                  ╲  ╱
Whatever the function is, parabola or kink, its minimum lies between the two. A parabola's lowest point is where the
minimum can be missed by least; where one side is steep that is elsewhere.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DRAWS = 100
"""Of the noise; the same for every function."""
PLACES = 80
"""At which the best place is looked for between two points."""
FROM_FAR_DRAWS = 1 / 3
"""A standard error, in distances from the middle draw of the noise to the one that 95 % are below. Were the gap normal,
it would be 0.61; but the lowest function that the points allow is rare, and a third holds what verdicts may err by
where one optimizer's basin has a wall (docs/error-rates.md)."""
TOLERANCE = 2.0
"""Standard errors by which slopes may fall outwards before a point is taken to lie where the function is not convex."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far below the value at a place the minimum may lie, and how sure that is."""

    middle: float
    """What half of the draws of the noise say."""
    error: float
    """Its standard error."""

    def extension(self, half_width: float, quantile: float) -> float:
        """How much farther an interval reaches for it, whose estimate is independent and has such a half width alone.
        Errors join in squares (G. Y. Zou and A. Donner, Stat. Med. 27, 2008), where so many standard errors of the gap
        count: a sum of both would be too wide where they are alike, and a fixed share of the draws too narrow where the
        gap's is the larger one, or comparisons are many."""
        return self.middle + math.hypot(half_width, quantile * self.error) - abs(half_width)


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvexFunction:
    """One that was measured at some points [n], ascending."""

    at: Array
    values: Array
    """The convex ones that fit best."""
    runs: Array
    """By how many runs each point was measured."""
    lowest: int
    """The point that was measured lowest."""
    end: float
    """How far it goes on beyond the last point; that point itself, where nothing is asked of what lies beyond."""

    def gap(self, place: float, variance: float) -> Gap:
        """How far below the value at a place the minimum lies at most, of runs with that variance."""
        middle, far = np.quantile(self._gaps(np.array([place]), variance), (0.5, 0.95)).tolist()
        return Gap(middle=middle, error=FROM_FAR_DRAWS * (far - middle))

    def best_place(self, variance: float) -> float:
        """Between the neighbours of the lowest point, where the minimum is missed by least."""
        low, high = self.at[max(self.lowest - 1, 0)], self.at[min(self.lowest + 1, len(self.at) - 1)]
        places = np.concatenate([self.at[[self.lowest]], np.linspace(low, high, PLACES + 1)])
        return float(places[self._gaps(places, variance).mean(axis=0).argmin()])

    def open_interval(self, variance: float) -> tuple[float, float, float]:
        """That beside the lowest point in which the function may be lowest: its ends, and where in it."""
        values, slopes = self._draws(variance)
        beside = [each for each in (self.lowest - 1, self.lowest) if 0 <= each < len(self.at) - 1]
        lows = {each: self._lowest(values, slopes, each) for each in beside}
        found = min(beside, key=lambda each: float(lows[each][0].mean()))
        return float(self.at[found]), float(self.at[found + 1]), float(lows[found][1].mean())

    def _gaps(self, places: Array, variance: float) -> Array:
        """[draws, places]. Beyond the last point the value is taken to be the one there: how far it falls farther out
        nobody knows."""
        values, slopes = self._draws(variance)
        interval = np.clip(np.searchsorted(self.at, places) - 1, 0, len(self.at) - 2)
        above = values[:, interval] + slopes[:, interval] * (places.clip(max=float(self.at[-1])) - self.at[interval])
        found = np.zeros_like(above)
        for each in range(len(self.at) - 1):
            low = self._lowest(values, slopes, each)[0][:, None]
            inside = (interval == each) & (self.at[each] < places) & (places < self.at[each + 1])
            found[:, ~inside] = np.maximum(found[:, ~inside], above[:, ~inside] - low)
            if inside.any():
                found[:, inside] = np.maximum(found[:, inside], self._gaps_within(values, slopes, each, places[inside]))
        if self.end > self.at[-1]:
            low = values[:, -1] + np.minimum(slopes[:, -1], 0.0) * (self.end - self.at[-1])
            found = np.maximum(found, above - low[:, None])
        return found

    def _gaps_within(self, values: Array, slopes: Array, interval: int, places: Array) -> Array:
        """[draws, places]: how far a function may fall from a place of an interval to its minimum in the same one. Both
        lie on the lower bound; or the minimum lies on it beyond its lowest point, and the value at the place on the
        chord from the nearer end to that. How far it falls then is greatest where its derivative is zero."""
        low, meet = (each[:, None] for each in self._lowest(values, slopes, interval))
        found = self._below(values, slopes, interval, places) - low
        width = self.at[interval + 1] - self.at[interval]
        for near, far in ((interval, interval + 1), (interval + 1, interval)):
            direction = far - near
            beyond = max(near, far) if direction > 0 else min(near, far) - 1
            if not 0 <= beyond < len(self.at) - 1:
                continue  # nothing bounds it from that side
            # Lengths from the near end, where the chord starts; the bound rises towards the far one, from so far below.
            length = np.abs(places - self.at[near])
            rise = slopes[:, [beyond]] * direction
            drop = values[:, [near]] - (values[:, [far]] - rise * width)
            with np.errstate(divide="ignore", invalid="ignore"):
                most = np.where(rise > 0, np.sqrt(np.maximum(drop * length / rise, 0.0)), width)
            most = np.clip(most, np.maximum(np.abs(meet - self.at[near]), length), width)
            found = np.maximum(found, (drop - rise * most) * (most - length) / most)
        return found

    def _draws(self, variance: float) -> tuple[Array, Array]:
        """Values [draws, n], and the slopes between them; one draw without noise."""
        noise = _normals(len(self.at)) * np.sqrt(variance / self.runs) if variance else np.zeros((1, len(self.at)))
        values = self.values + noise
        return values, np.diff(values, axis=1) / np.diff(self.at)

    def _below(self, values: Array, slopes: Array, interval: int, places: Array) -> Array:
        """The lower bound at places of an interval, the same for all draws [k] or their own [draws, k]."""
        found = np.full((len(values), places.shape[-1]), -np.inf)
        if len(self.at) == 2:  # two points bound nothing between them: it is the lower one, until more are measured
            return np.broadcast_to(values.min(axis=1, keepdims=True), found.shape)
        if interval > 0:
            found = values[:, [interval]] + slopes[:, [interval - 1]] * (places - self.at[interval])
        if interval < len(self.at) - 2:
            after = values[:, [interval + 1]] + slopes[:, [interval + 1]] * (places - self.at[interval + 1])
            found = np.maximum(found, after)
        return found

    def _lowest(self, values: Array, slopes: Array, interval: int) -> tuple[Array, Array]:
        """Of each draw, the least of the lower bound within an interval, and where: at an end, or where the two chords
        meet."""
        low, high = self.at[interval], self.at[interval + 1]
        places = np.tile(np.array([low, high]), (len(values), 1))
        if 0 < interval < len(self.at) - 2:
            before, after = slopes[:, interval - 1], slopes[:, interval + 1]
            rise = values[:, interval + 1] - values[:, interval] + before * low - after * high
            with np.errstate(divide="ignore", invalid="ignore"):
                meet = np.clip(np.nan_to_num(rise / (before - after), nan=low), low, high)
            places = np.column_stack([places, meet])
        bounds = self._below(values, slopes, interval, places)
        least = bounds.argmin(axis=1)
        rows = np.arange(len(values))
        return bounds[rows, least], places[rows, least]


def convex_function(at: Array, means: Array, runs: Array, variance: float, end: float | None = None) -> ConvexFunction:
    """By the means of so many `runs` at each point [n], each of that variance. Without the points outwards of which the
    means no longer bend upwards, by more than noise: a loss levels off far from its minimum."""
    kept = _convex_part(at, means, np.sqrt(variance / runs))
    at, means, runs = at[kept], means[kept], runs[kept]
    return ConvexFunction(
        at=at,
        values=fit(at, means, runs),
        runs=runs,
        lowest=int(means.argmin()),
        end=float(at[-1]) if end is None else end,
    )


def fit(at: Array, means: Array, weights: Array) -> Array:
    """The convex function with the least sum of squares: a line, and at each inner point a bend that is not negative
    (C. Hildreth, "Point estimates of ordinates of concave functions", JASA 49, 1954)."""
    if len(at) < 3:
        return means
    from scipy.optimize import nnls  # a third of a second that only this asks for

    root = np.sqrt(weights)[:, None]
    bends = np.maximum(at[:, None] - at[None, 1:-1], 0.0)
    line = np.column_stack([np.ones_like(at), at])
    basis, _ = np.linalg.qr(root * line)

    def off_the_line(values: Array) -> Array:
        return np.asarray(values - basis @ (basis.T @ values))

    sizes, _ = nnls(off_the_line(root * bends), off_the_line(root[:, 0] * means))
    bent = bends @ sizes
    coefficients = np.linalg.lstsq(root * line, root[:, 0] * (means - bent), rcond=None)[0]
    return np.asarray(line @ coefficients + bent)


def _convex_part(at: Array, means: Array, errors: Array) -> slice:
    """From the lowest point to either side, up to where a slope is smaller than the one before it."""
    lowest = int(means.argmin())

    def reach(step: int) -> int:
        place = lowest + step
        while 0 <= place + step < len(at):
            inner, outer = place - step, place + step
            gaps = abs(at[place] - at[inner]), abs(at[outer] - at[place])
            bend = (means[outer] - means[place]) / gaps[1] - (means[place] - means[inner]) / gaps[0]
            error = np.sqrt(
                (errors[inner] / gaps[0]) ** 2
                + (errors[place] * (1 / gaps[0] + 1 / gaps[1])) ** 2
                + (errors[outer] / gaps[1]) ** 2
            )
            if bend < -TOLERANCE * error - 1e-12 * abs(means[place]):
                break
            place = outer
        return min(max(place, 0), len(at) - 1)

    return slice(reach(-1), reach(1) + 1)


@cache
def _normals(count: int) -> Array:
    return np.random.default_rng(0).standard_normal((count, DRAWS)).T
