"""Series for figures: columns → the rows that a line needs, rows of several seeds → one line with its band. Pure.

What happens here happens in figures only: no table, no statistic and no verdict is computed from smoothed values.
"""

import math
import warnings
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dashboards.view_state import XAxis
from orchestrator.columns import Array, Columns, spikes
from orchestrator.external_runs import USUAL_METRICS, ExternalSeries
from orchestrator.records import SECONDS_PER_HOUR

LossColumn = Literal["train_loss", "smoothed", "val_loss"]

SMOOTHING_SHARE = 0.03
"""Width of the moving average over training losses, as a share of the points: it calms batch noise and keeps bends."""
MAX_POINTS = 800
"""Points drawn of one line: about one for each pixel of a wide figure."""
SPIKE_RANGES = MAX_POINTS // 2
"""Ranges of steps of a run's own figure, of each of which the lowest and the highest point are drawn."""
SPIKY = ("train_loss", "val_loss", "lr", "grad_norm", "step_seconds")
"""The lines of that figure."""
OWN_FIELDS = ("tokens", "train_loss", "val_loss", "lr", "grad_norm", "step_seconds")
"""The fields of a point that a run's own figure shows; the rest is not read."""
CURVE_FIELDS = ("tokens", "train_loss", "val_loss", "step_seconds")
"""The fields of a point that a figure of several runs shows."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Rows of one run as columns of equal length n; missing values are NaN."""

    steps: Array
    tokens: Array
    seconds: Array
    """Training time so far: the sum of the steps' wall-clock times."""
    hours: Array
    """Device-hours so far: the run's own, in proportion to its steps."""
    train_loss: Array
    smoothed: Array
    """The training loss's moving average over all points, those that are not drawn too."""
    val_loss: Array
    lr: Array
    grad_norm: Array
    step_seconds: Array
    ended: bool
    """Whether the series is complete."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Mean over seeds with the lowest and the highest seed, all of shape (n,)."""

    x: Array
    mean: Array
    low: Array
    high: Array


def series(columns: Columns, *, ended: bool, device_seconds: float = 0.0) -> Series:
    """Return all rows of one run, which has taken so many device-seconds; what was not read of it is NaN."""
    unread = np.full(len(columns), np.nan)
    step_seconds, train_loss = columns.column("step_seconds"), columns.values.get("train_loss", unread)
    return Series(
        steps=columns.step,
        tokens=columns.column("tokens"),
        seconds=elapsed_seconds(columns.step, step_seconds),
        hours=columns.step * (device_seconds / SECONDS_PER_HOUR / max([1.0, *columns.step[-1:]])),
        train_loss=train_loss,
        smoothed=smooth(train_loss, window_of(train_loss.size)),
        val_loss=columns.column("val_loss"),
        lr=columns.values.get("lr", unread),
        grad_norm=columns.values.get("grad_norm", unread),
        step_seconds=step_seconds,
        ended=ended,
    )


def external_columns(external: ExternalSeries, names: Sequence[str]) -> Columns:
    """Return the columns that another loop logged, with a row for each step at which it logged any of these metrics;
    NaN marks missing values."""
    sources = {name: source for name in names if (source := external_metric(external.steps, name)) is not None}
    steps = np.unique(np.array([step for source in sources.values() for step in external.steps[source]], dtype=float))
    values = {name: np.full(steps.size, np.nan) for name in names}
    for name, source in sources.items():
        values[name][np.searchsorted(steps, external.steps[source])] = external.values[source]
    return Columns(step=steps, values=values)


def external_metric(names: Container[str], metric: str) -> str | None:
    """Return another loop's name for one of our metrics; None if it did not log it."""
    usual = USUAL_METRICS if metric == "val_loss" else ()
    return next((name for name in (metric, *usual) if name in names), None)


def external_series(columns: Columns, *, ended: bool) -> Series:
    """Return the rows of a run that another loop logged. It has no device time; its tokens and its training
    time are known as far as it logged `tokens` and `step_seconds`, and rise evenly between two such steps."""
    timed = np.isfinite(columns.column("step_seconds"))
    elapsed = elapsed_seconds(columns.step[timed], columns.column("step_seconds")[timed])
    return replace(
        series(columns, ended=ended),
        hours=np.full(len(columns), np.nan),
        seconds=_between(columns.step, columns.step[timed], elapsed),
        tokens=_between(columns.step, columns.step, columns.column("tokens")),
    )


def _between(steps: Array, told_at: Array, values: Array) -> Array:
    """Return the logged values at some steps, carried up to the last of them; NaN before the first."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(steps.size, np.nan)
    return np.interp(steps, told_at[finite], values[finite], left=np.nan, right=np.nan)


def evenly_spaced_rows(rows: Series, steps_total: int) -> Series:
    """Return the rows for a figure of several seeds: evenly spread over the budget, at the same steps in every seed,
    and all evaluations where they are no more than `MAX_POINTS`. Every row of a short run."""
    if steps_total <= 2 * MAX_POINTS:
        return rows
    column = np.floor(rows.steps * MAX_POINTS / steps_total)
    chosen = np.diff(column, prepend=-1.0) > 0
    evaluated = np.flatnonzero(np.isfinite(rows.val_loss))
    if evaluated.size > MAX_POINTS:
        evaluated = evaluated[np.diff(column[evaluated], prepend=-1.0) > 0]
    chosen[evaluated] = True
    return _rows(rows, chosen)


def spiky_rows(rows: Series, columns: Columns) -> Series:
    """Return the rows for a run's own figure, in which no spike may be lost: extremes of every line, and all
    evaluations where they are no more than `MAX_POINTS`."""
    evaluated = np.isfinite(rows.val_loss)
    chosen = evaluated if np.count_nonzero(evaluated) <= MAX_POINTS else np.zeros(rows.steps.size, dtype=bool)
    chosen[spikes(columns, SPIKY, SPIKE_RANGES)] = True
    return _rows(rows, chosen)


def _rows(rows: Series, chosen: NDArray[np.bool_]) -> Series:
    if rows.steps.size == 0:
        return rows
    chosen[-1] = True
    arrays = {field.name: getattr(rows, field.name)[chosen] for field in fields(rows) if field.name != "ended"}
    return Series(**arrays, ended=rows.ended)


def elapsed_seconds(steps: Array, step_seconds: Array) -> Array:
    """Return the training seconds up to each point (n,); steps between two points last as long as the later one."""
    gaps = np.diff(steps, prepend=steps[:1])
    return np.cumsum(gaps * np.where(np.isfinite(step_seconds), step_seconds, 0.0))


def smooth(values: Array, window: int) -> Array:
    """Return the centred moving average over `window` points (odd); NaN is skipped, the ends use fewer points."""
    if window <= 1 or values.size == 0:
        return values
    finite = np.isfinite(values)
    if not finite.any():
        return values
    # Sums up to each point, so that the time does not grow with the window: of a million points it has 30,001.
    total = np.concatenate(([0.0], np.cumsum(np.where(finite, values, 0.0))))
    number = np.concatenate(([0], np.cumsum(finite)))
    first = np.maximum(np.arange(values.size) - window // 2, 0)
    end = np.minimum(np.arange(values.size) + window // 2 + 1, values.size)
    counted = number[end] - number[first]
    return np.where(finite, (total[end] - total[first]) / np.maximum(counted, 1), np.nan)


def window_of(length: int, share: float = SMOOTHING_SHARE) -> int:
    """Return the odd width of the moving average for a line of `length` points."""
    return (max(1, round(share * length)) - 1) | 1


def across_seeds(seeds: Sequence[Series], column: LossColumn, x: XAxis) -> Band:
    """Return the mean, lowest and highest of the seeds at each step that any of them has reached.

    A mean ends where the first ended seed ends (a diverged one): what the others do later is not the mean of all.
    """
    steps, losses, xs = _align_seeds(seeds, column, x)
    ended = [seed.steps[np.isfinite(getattr(seed, column))] for seed in seeds if seed.ended]
    common_end = min((float(seed_steps[-1]) if seed_steps.size else -1.0 for seed_steps in ended), default=math.inf)
    reached = np.isfinite(losses).any(axis=0) & (steps <= common_end)
    losses, xs = losses[:, reached], xs[:, reached]
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


def thin_band(band: Band) -> Band:
    """Return at most `MAX_POINTS` of a band, evenly spread, both ends kept."""
    indices = even_indices(band.x.size, MAX_POINTS)
    return Band(x=band.x[indices], mean=band.mean[indices], low=band.low[indices], high=band.high[indices])


def even_indices(length: int, limit: int) -> NDArray[np.int64]:
    """Return the indices of at most `limit` of `length` points, evenly spread, both ends included."""
    if length <= limit:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, limit).round().astype(np.int64))


def numbers(values: Array) -> list[float | None]:
    """Return JSON numbers of five significant digits; NaN becomes null."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _align_seeds(seeds: Sequence[Series], column: LossColumn, x: XAxis) -> tuple[Array, Array, Array]:
    """Return steps (n,), losses (seeds, n) and x values (seeds, n) over the union of the seeds' steps."""
    steps = np.unique(np.concatenate([seed.steps for seed in seeds])) if seeds else np.empty(0)
    losses = np.full((len(seeds), steps.size), np.nan)
    xs = np.full((len(seeds), steps.size), np.nan)
    for row, seed in enumerate(seeds):
        columns = np.searchsorted(steps, seed.steps)
        losses[row, columns] = getattr(seed, column)
        xs[row, columns] = getattr(seed, x)
    return steps, losses, xs
