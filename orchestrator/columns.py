"""A series as columns: one float64 array per field of `Point`, NaN where null. Merged, downsampled, turned back. Pure.

    Point, Point, …  ⇄  Columns ──merged──► one row per step ──buckets──► min, mean and max of a metric
                                                          └──spikes───► the rows that a line needs

As columns a million points are read and drawn in a moment (`python -m benchmarks.service_load`), as objects not.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from worker.records.columns import PointColumns
from worker.records.result import Point

Array = NDArray[np.float64]

STEP = "step"
FIELDS = tuple(Point.model_fields)


def _is_whole(annotation: Any) -> bool:
    return annotation is int or any(_is_whole(argument) for argument in get_args(annotation))


WHOLE_NUMBERS = frozenset(name for name, field in Point.model_fields.items() if _is_whole(field.annotation))
"""Fields that are integers; float64 keeps them exactly up to 2**53, which is their bound."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Rows as arrays of equal length n; `merged` ones have rising steps, at most one row per step."""

    step: Array
    values: dict[str, Array]
    """The fields that were asked for, `step` excepted, in the order of `Point`; NaN is null."""

    def __len__(self) -> int:
        return int(self.step.size)

    def column(self, name: str) -> Array:
        """Return one field, `step` included."""
        return self.step if name == STEP else self.values[name]

    def rows(self, chosen: "NDArray[Any] | slice") -> "Columns":
        """Return some of the rows: an index, a mask or a slice of numpy's."""
        return Columns(step=self.step[chosen], values={name: array[chosen] for name, array in self.values.items()})

    def points(self) -> Iterator[Point]:
        """Yield the rows as records."""
        lists = [_plain(name, self.column(name)) for name in (STEP, *self.values)]
        for row in zip(*lists, strict=True):
            # Not validated again: what is stored was validated when it came in.
            yield Point.model_construct(**dict(zip((STEP, *self.values), row, strict=True)))


def columns_of(points: PointColumns | Iterable[Point], fields: Iterable[str] = FIELDS) -> Columns:
    """Return every field of some points, or some of their fields, as they come."""
    sent = points if isinstance(points, PointColumns) else PointColumns.from_points(points)
    missing = np.full(len(sent), np.nan)
    sent_values = {name: getattr(sent, name) for name in dict.fromkeys((STEP, *fields))}
    values = {name: missing if some is None else np.array(some, np.float64) for name, some in sent_values.items()}
    return Columns(step=values.pop(STEP), values=values)


def merge_attempts(columns: Columns, attempt: NDArray[np.int64]) -> Columns:
    """Return one row per step from rows in the order of their arrival: for each step those of the newest attempt that
    reached it; of two reports of one attempt at one step, the later value of each field that is not null."""
    step = columns.step
    if np.all(step[1:] > step[:-1]):
        return columns  # nothing was reported twice, nearly always
    order = np.lexsort((np.arange(step.size), step))
    newest = np.maximum.reduceat(attempt[order], _starts(step[order]))
    group = np.cumsum(np.diff(step[order], prepend=step[order[0]]) > 0)
    order = order[attempt[order] == newest[group]]
    starts = _starts(step[order])
    values = {name: _last_known_values(array[order], starts) for name, array in columns.values.items()}
    return Columns(step=step[order[starts]], values=values)


def buckets(columns: Columns, metric: str, count: int) -> dict[str, NDArray[Any]]:
    """Return `metric` over at most `count` equal ranges of the steps that there are, as columns of a `Chart`: no spike
    is lost, whatever the range; ranges without a value are left out."""
    finite = np.isfinite(columns.column(metric))
    step, value = columns.step[finite].astype(np.int64), columns.column(metric)[finite]
    if step.size == 0:
        return dict.fromkeys(("first_step", "last_step", "points", "low", "mean", "high"), np.empty(0, np.int64))
    starts = _starts(_range_indices(columns.step[finite], count) if step.size > count else np.arange(step.size))
    ends = np.append(starts[1:], step.size)
    sizes = ends - starts
    return {
        "first_step": step[starts],
        "last_step": step[ends - 1],
        "points": sizes,
        "low": np.minimum.reduceat(value, starts),
        # Divided before it is added up: two losses near the largest number would otherwise become infinite.
        "mean": np.add.reduceat(value / np.repeat(sizes, sizes), starts),
        "high": np.maximum.reduceat(value, starts),
    }


def spikes(columns: Columns, metrics: Sequence[str], count: int) -> NDArray[np.int64]:
    """Return the indices of the rows that lines through `metrics` need: in each of `count` ranges of steps the lowest
    and the highest row of every metric, and both ends. All rows where there are hardly more."""
    if len(columns) <= 2 * count:
        return np.arange(len(columns))
    ranges = _range_indices(columns.step, count)
    chosen = [np.array([0, len(columns) - 1])]
    for metric in metrics:
        value = columns.column(metric)
        finite = np.flatnonzero(np.isfinite(value))
        if finite.size:
            chosen += [finite[extremes] for extremes in _extremes(value[finite], _starts(ranges[finite]))]
    return np.unique(np.concatenate(chosen))


def _extremes(values: Array, starts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the index of each group's first lowest value, then that of the first highest one."""
    group = np.repeat(np.arange(starts.size), np.diff(starts, append=values.size))
    for extreme in (np.minimum, np.maximum):
        hits = np.flatnonzero(values == extreme.reduceat(values, starts)[group])
        yield hits[_starts(group[hits])]


def _range_indices(step: Array, count: int) -> NDArray[np.int64]:
    """Return the range from 0 to `count` - 1 of each of the rising steps."""
    share = (step - step[0]) / max(step[-1] - step[0], 1.0)
    ranges: NDArray[np.int64] = np.minimum((share * count).astype(np.int64), count - 1)
    return ranges


def _starts(key: NDArray[Any]) -> NDArray[np.int64]:
    """Return the starts of runs of equal values."""
    return np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))


def _last_known_values(values: Array, starts: NDArray[np.int64]) -> Array:
    """Return the last value of each group that is not NaN; NaN if the group has none."""
    index = np.where(np.isnan(values), -1, np.arange(values.size))
    last = np.maximum.reduceat(index, starts)
    last_values: Array = np.where(last >= starts, values[last], np.nan)
    return last_values


def _plain(name: str, column: Array) -> list[float | int | None]:
    values = column.tolist()
    if name in WHOLE_NUMBERS:
        return [None if value != value else int(value) for value in values]
    return [None if value != value else value for value in values]
