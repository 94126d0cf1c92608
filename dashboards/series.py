"""Series for figures: points → arrays, arrays of several seeds → one line with its band. Pure.

What happens here happens in figures only: no table, no statistic and no verdict is computed from smoothed values.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from worker.record import Point

Array = NDArray[np.float64]
LossColumn = Literal["train_loss", "val_loss"]
XColumn = Literal["steps", "tokens", "seconds"]

SMOOTHING_SHARE = 0.03
"""Width of the moving average over training losses, as a share of the points: it calms batch noise and keeps bends."""
MAX_POINTS = 800
"""Points drawn of one line: about one for each pixel of a wide figure."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One run's points as columns of equal length n; missing values are NaN."""

    steps: Array
    tokens: Array
    seconds: Array
    """Training time so far: the sum of the steps' wall-clock times."""
    train_loss: Array
    val_loss: Array
    lr: Array
    grad_norm: Array
    step_seconds: Array
    ended: bool
    """No further point will come."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Mean over seeds with the lowest and the highest seed, all of shape (n,)."""

    x: Array
    mean: Array
    low: Array
    high: Array


def series(points: Sequence[Point], *, ended: bool) -> Series:
    """The columns of one run, in the order of its steps."""
    steps = _column([point.step for point in points])
    step_seconds = _column([point.step_seconds for point in points])
    return Series(
        steps=steps,
        tokens=_column([point.tokens for point in points]),
        seconds=elapsed(steps, step_seconds),
        train_loss=_column([point.train_loss for point in points]),
        val_loss=_column([point.val_loss for point in points]),
        lr=_column([point.lr for point in points]),
        grad_norm=_column([point.grad_norm for point in points]),
        step_seconds=step_seconds,
        ended=ended,
    )


def elapsed(steps: Array, step_seconds: Array) -> Array:
    """Training seconds up to each point (n,); between two points every step counts as long as the later one's."""
    gaps = np.diff(steps, prepend=steps[:1])
    return np.cumsum(gaps * np.nan_to_num(step_seconds))


def smooth(values: Array, window: int) -> Array:
    """Centred moving average over `window` points (odd); NaN is skipped, the ends use what there is."""
    if window <= 1 or values.size == 0:
        return values
    kernel = np.ones(min(window, _odd(values.size)))
    known = np.isfinite(values)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    number = np.convolve(known.astype(float), kernel, mode="same")
    return np.where(known & (number > 0), total / np.maximum(number, 1.0), np.nan)


def window_of(length: int) -> int:
    """The odd width of the moving average for a line of `length` points."""
    return _odd(max(1, round(SMOOTHING_SHARE * length)))


def across_seeds(seeds: Sequence[Series], column: LossColumn, x: XColumn, *, smoothing: bool = False) -> Band:
    """Mean, lowest and highest of the seeds at each step that any of them has reached.

    A mean ends where the first ended seed ends (a diverged one): what the others do later is not the mean of all.
    """
    steps, losses, xs = _aligned(seeds, column, x, smoothing=smoothing)
    known = np.isfinite(losses).any(axis=0) & (steps <= _common_end(seeds, column))
    losses, xs = losses[:, known], xs[:, known]
    if losses.size == 0:
        nothing = np.empty(0)
        return Band(x=nothing, mean=nothing, low=nothing, high=nothing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an x that no seed knows stays NaN
        return Band(
            x=np.nanmean(xs, axis=0),
            mean=np.nanmean(losses, axis=0),
            low=np.nanmin(losses, axis=0),
            high=np.nanmax(losses, axis=0),
        )


def thinned(band: Band) -> Band:
    """At most `MAX_POINTS` of a band, evenly spread, both ends kept."""
    if band.x.size <= MAX_POINTS:
        return band
    kept = np.unique(np.linspace(0, band.x.size - 1, MAX_POINTS).round().astype(int))
    return Band(x=band.x[kept], mean=band.mean[kept], low=band.low[kept], high=band.high[kept])


def numbers(values: Array) -> list[float | None]:
    """JSON numbers of five significant digits; NaN becomes null."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _aligned(seeds: Sequence[Series], column: LossColumn, x: XColumn, *, smoothing: bool) -> tuple[Array, Array, Array]:
    """Steps (n,), losses (seeds, n) and x values (seeds, n) over the union of the seeds' steps."""
    steps = np.unique(np.concatenate([one.steps for one in seeds])) if seeds else np.empty(0)
    losses = np.full((len(seeds), steps.size), np.nan)
    xs = np.full((len(seeds), steps.size), np.nan)
    for row, one in enumerate(seeds):
        places = np.searchsorted(steps, one.steps)
        values: Array = getattr(one, column)
        losses[row, places] = smooth(values, window_of(values.size)) if smoothing else values
        xs[row, places] = getattr(one, x)
    return steps, losses, xs


def _common_end(seeds: Sequence[Series], column: LossColumn) -> float:
    ends = [_last_known(one.steps, getattr(one, column)) for one in seeds if one.ended]
    return min(ends, default=math.inf)


def _last_known(steps: Array, values: Array) -> float:
    known = steps[np.isfinite(values)]
    return float(known[-1]) if known.size else -1.0


def _column(values: Sequence[float | None]) -> Array:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _odd(number: int) -> int:
    return number if number % 2 else number - 1
