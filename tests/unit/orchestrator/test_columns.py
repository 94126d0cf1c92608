"""Columns are merged and downsampled as a slow, readable twin does it: a row at a time."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.columns import Array, Columns, buckets, merge_attempts, spikes

Report = tuple[int, int, float | None, float | None]

values = st.none() | st.floats(-100, 100)
reports = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 12), values, values), max_size=40)


def column(numbers: Sequence[float | None]) -> Array:
    return np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)


@given(reports)
def test_merging_keeps_of_each_step_what_the_newest_attempt_said_last(
    rows: list[tuple[int, int, float | None, float | None]],
) -> None:
    rows = sorted(rows, key=lambda row: row[0])  # chunks are read attempt by attempt
    expected: dict[int, tuple[int, float | None, float | None]] = {}
    for attempt, step, train, val in rows:
        entry = expected.get(step)
        if entry is not None and entry[0] == attempt:
            train = entry[1] if train is None else train
            val = entry[2] if val is None else val
        expected[step] = (attempt, train, val)
    attempts = np.array([row[0] for row in rows], dtype=np.int64)
    losses = {"train_loss": column([row[2] for row in rows]), "val_loss": column([row[3] for row in rows])}
    columns = merge_attempts(Columns(step=column([row[1] for row in rows]), values=losses), attempts)
    assert columns.step.tolist() == sorted(expected)
    for index, name in ((1, "train_loss"), (2, "val_loss")):
        wanted = column([expected[step][index] for step in sorted(expected)])
        np.testing.assert_array_equal(columns.column(name), wanted)


@given(st.lists(values, min_size=1, max_size=60), st.integers(1, 9))
def test_buckets_lose_no_extreme_no_point_and_no_mean(losses: list[float | None], count: int) -> None:
    loss = column(losses)
    finite_losses = loss[np.isfinite(loss)]
    summary = buckets(Columns(step=column([3.0 * n for n in range(loss.size)]), values={"loss": loss}), "loss", count)
    assert summary["points"].sum() == finite_losses.size
    assert summary["points"].size <= max(count, 0) or finite_losses.size <= count
    if finite_losses.size:
        assert (summary["low"].min(), summary["high"].max()) == (finite_losses.min(), finite_losses.max())
        np.testing.assert_allclose((summary["mean"] * summary["points"]).sum(), finite_losses.sum(), atol=1e-9)
        assert np.all((summary["low"] <= summary["mean"] + 1e-9) & (summary["mean"] <= summary["high"] + 1e-9))
        assert np.all(summary["first_step"][1:] > summary["last_step"][:-1])


@given(st.lists(values, min_size=1, max_size=80), st.integers(1, 9))
def test_the_rows_of_a_line_include_the_extremes_of_every_metric(losses: list[float | None], count: int) -> None:
    loss = column(losses)
    columns = Columns(step=np.arange(loss.size, dtype=np.float64), values={"loss": loss, "rate": -loss})
    rows = columns.rows(spikes(columns, ("loss", "rate"), count))
    assert len(rows) <= max(2 * count, 4 * count + 2)
    for name in ("loss", "rate"):
        if np.isfinite(loss).any():
            assert np.nanmin(rows.column(name)) == np.nanmin(columns.column(name))
            assert np.nanmax(rows.column(name)) == np.nanmax(columns.column(name))
    assert rows.step[0] == 0
    assert rows.step[-1] == loss.size - 1
