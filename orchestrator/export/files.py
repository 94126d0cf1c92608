"""Exports: an experiment's or a run's results and series as Parquet or CSV, for notebooks and for keeping.

    results   a row per run: what it was, how it ended, every figure of its result
    series    a row per point: the run, its candidate, optimizer, learning rate and seed, every field of a point

One run's series at a time is in memory, and of results what differs between runs. Both tables follow the models, so
that a new field of a point is a new column. pyarrow costs a quarter of a second and 50 MB: imported by who exports.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from orchestrator.columns import FIELDS, STEP, WHOLE_NUMBERS, Columns
from orchestrator.export.cells import Format, leaves, spreadsheet_safe
from orchestrator.records import RunRecord


def write_results(runs: Iterable[RunRecord], file: IO[bytes], form: Format) -> None:
    """Write a row for each run, in the order given."""
    columns, length = _columns(runs)
    by_field = columns or {name: [] for name in RunRecord.model_fields}
    names = [name for name in by_field if not any(field.startswith(f"{name}.") for field in by_field)]
    arrays = [pa.array(_uniform(by_field[name] + [None] * (length - len(by_field[name])), form)) for name in names]
    table = pa.Table.from_arrays(arrays, names=names)
    with _writer(file, table.schema, form) as writer:
        writer.write_table(table)


def _columns(runs: Iterable[RunRecord]) -> tuple[dict[str, list[Any]], int]:
    """Return the leaves of all runs by name, a shorter list where the last ones have none, and how many runs there are.

    Only the kinds of all values tell the type of a column, so all of them are held; texts, which are most of it and
    nearly all equal, once.
    """
    columns: dict[str, list[Any]] = {}
    texts: dict[str, str] = {}
    length = 0
    for run in runs:
        # What the flat columns say in several, in one word each.
        peak_bytes = run.result.peak_tensor_bytes() if run.result else None
        whole = {"outcome": run.state_word(), "peak_tensor_bytes": peak_bytes}
        for name, value in (*leaves(run.model_dump(mode="json")), *whole.items()):
            column = columns.setdefault(name, [])
            column.extend([None] * (length - len(column)))
            column.append(texts.setdefault(value, value) if isinstance(value, str) else value)
        length += 1
    return columns, length


def write_series(read: Callable[[str], Columns], runs: Iterable[RunRecord], file: IO[bytes], form: Format) -> None:
    """Write a row for each point of each run, run by run, as `read` has its series; in Parquet each run is a row
    group."""
    texts = [("run_id", pa.string()), ("candidate", pa.string()), ("optimizer", pa.string())]
    numbers = [("run_lr", pa.float64()), ("seed", pa.int64())]  # `lr` is a point's: the schedule's at that step
    fields = [(name, pa.int64() if name in WHOLE_NUMBERS else pa.float64()) for name in FIELDS]
    schema = pa.schema(texts + numbers + fields)
    with _writer(file, schema, form) as writer:
        for run in runs:
            columns = read(run.id)
            candidate = spreadsheet_safe(run.candidate) if form is Format.CSV else run.candidate
            run_values = [run.id, candidate, run.optimizer, run.lr, run.seed]
            repeated = [
                pa.repeat(pa.scalar(value, schema.field(n).type), len(columns)) for n, value in enumerate(run_values)
            ]
            writer.write_table(pa.Table.from_arrays([*repeated, *_arrays(columns)], schema=schema))


def _uniform(values: list[Any], form: Format) -> list[Any]:
    """Return a column of one type: where kinds are mixed, all as text."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1:
        values = [None if value is None else str(value) for value in values]
    return [spreadsheet_safe(value) for value in values] if form is Format.CSV else values


def _arrays(columns: Columns) -> Iterator[Any]:
    for name in (STEP, *columns.values):
        column = columns.column(name)
        null = np.isnan(column)
        if name in WHOLE_NUMBERS:
            column = np.where(null, 0, column).astype(np.int64)
        yield pa.array(column, mask=null)


def _writer(file: IO[bytes], schema: Any, form: Format) -> Any:
    if form is Format.CSV:
        return csv.CSVWriter(file, schema)
    return parquet.ParquetWriter(file, schema, compression="zstd")
