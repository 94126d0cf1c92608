"""Read tables in CSV or Parquet. The columns alone decide the layout:

    points   step, val_loss, …                    runs   run, lr, val_loss, …
    long     run, step, key, value                chart  Step, "NAME - METRIC", …
    curve    Step, Value, in a file named after its metric

A column with names separates runs; without one, candidate and seed do, and the learning rate or another usual
hyperparameter if it is constant over a run or if steps repeat without it. One that changes is a schedule, so a metric.
Curves, and rows of one run in several files, are one run in a folder. `hparams.yaml` beside a table, as Lightning's
logger writes it, is the configuration.
"""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from api.client.own_runs import LARGEST_STEP
from api.imports.mapping import parse_name
from api.imports.source import (
    CANDIDATE_NAMES,
    RATE_NAMES,
    SEED_NAMES,
    STEP_NAMES,
    ReadRequest,
    SourceError,
    SourcePoint,
    SourceRun,
    as_number,
    find_files,
    parse_number,
    reading,
)
from orchestrator.external_runs import ExternalState
from orchestrator.specs.text import SpecLoader

RUN_COLUMNS = ("run", "run_id", "run_name", "runid", "name", "id", "trial_id")
SETTING_COLUMNS = ("experiment", *CANDIDATE_NAMES, *SEED_NAMES, "workload", "task", "dataset", "model", "project",
                   "project_id")  # fmt: skip
VARIED_COLUMNS = (*RATE_NAMES, "weight_decay", "wd", "batch_size", "grad_accum", "gradient_accumulation_steps",
                  "momentum", "beta1", "beta2", "warmup", "warmup_steps")  # fmt: skip
KEY_COLUMNS = ("key", "metric", "metric_name", "tag", "variable", "attribute_path")
PART_COLUMNS = ("split", "subset", "context")
STATE_COLUMNS = ("state", "status")
STATES = {
    **dict.fromkeys(("finished", "complete", "completed", "succeeded", "success", "done", "ok", "terminated"),
                    ExternalState.FINISHED),
    **dict.fromkeys(("running", "pending", "queued", "scheduled"), ExternalState.RUNNING),
}  # fmt: skip
"""The words of W&B, MLflow, Slurm, Ray and Optuna; a run with any other word has failed."""
TIME_COLUMNS = ("wall time", "wall_time", "timestamp", "_timestamp")
VALUE = re.compile(r"(?:\w+_)?value")
PATTERNS = ("*.csv", "*.tsv", "*.parquet")
MOST_UNPACKED = 1_000
"""Bytes of a table in Parquet for each byte of its file: logs are packed to a tenth, not to a thousandth."""
SETTING_PREFIX = re.compile(r"(?:config|params)[./]")
"""What MLflow's and Ray's tables put before the names of settings."""
CHART_DASH, CHART_BOUNDS = " - ", ("__MIN", "__MAX")
PYTHON_TAG = re.compile(r"!!python/(?:name:(\S+) ''|\S+)")
INDEX = re.compile(r"(?:Unnamed: 0|__index_level_0__)?")
"""The numbers of rows, which pandas puts before a table."""
CURVE_FILE = re.compile(r"run-(?P<run>.+?)-tag-(?P<metric>.+)")
DECIMAL_SIGNS = {
    sign: re.compile(
        rf"[-+]?(?:0?\{sign}\d+|\d+\{sign}(?:\d|\d\d|\d{{4,}})|\d{{1,3}}(?:\{group}\d{{3}})+\{sign}\d*)(?:[eE][-+]?\d+)?"
    )
    for sign, group in ((",", "."), (".", ","))
}
"""Numbers that show by themselves that the sign is decimal: before other than three digits, behind nothing or 0, or
behind groups that the other sign divides."""

Cell = int | float | str | None
Row = dict[str, Cell]


@dataclass
class _Table:
    """A file, as far as its layout does not matter."""

    path: Path
    header: list[str]
    rows: list[Row]
    lines: Sequence[int]
    """The line of the file of each row."""
    notes: dict[str, None] = field(default_factory=dict)
    """A sentence each, once."""


@dataclass
class _Layout:
    """The meaning of each column."""

    name: str
    step: str | None
    time: str | None
    runs: list[str]
    """Columns whose values distinguish runs."""
    metrics: dict[str, tuple[str | None, str]]
    """Run, where the column says it, and metric of the others."""
    key: str | None = None
    """The column that names the metric of a row."""
    part: str | None = None
    """The column that says on which part of the data a row was measured."""
    state: str | None = None
    """The column that says whether a run has ended."""
    is_shared: bool = False
    """Whether other files of the folder may say more of the same runs."""
    left_out: list[str] = field(default_factory=list)


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """Yield the runs of every folder."""
    requested_names = {name.removeprefix("config.") for name in request.fields}
    folders: dict[Path, list[tuple[Path, Path]]] = {}
    for path, way in find_files(request.places, *PATTERNS):
        folders.setdefault(path.parent, []).append((path, way))
    for folder, files in folders.items():
        settings = read_hyperparameters(folder / "hparams.yaml")
        runs: dict[tuple[object, ...], SourceRun] = {}
        for path, way in files:
            with reading(path, "a table"):
                table = (_parquet if path.suffix == ".parquet" else _csv)(path)
                if not table.rows:
                    request.empty.append(path)
                    continue
                table.header = [name for name in table.header if not INDEX.fullmatch(name)]
                layout = _choose_layout(table, requested_names, request.step)
                file_runs = runs if layout.is_shared else {}
                _add_rows(table, layout, way, settings, file_runs)
            if not layout.is_shared:  # else another file may say more of the same run
                yield from file_runs.values()
        for run in runs.values():  # rows may be sorted by metric: in time, else by step, they are one stream
            times = {point.at for point in run.points}
            run.sessions[0].sort(key=attrgetter("at" if len(times) > 1 else "step"))
            yield run


# Rows


def _csv(path: Path) -> _Table:
    """Return a file of lines. Its first line has the names of the columns, and shows what stands between them."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        raise SourceError(f"{path} is packed by gzip; unpack it first: gunzip {path.name}")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode("cp1252")
    text = text.removeprefix("#")  # as numpy.savetxt writes
    if not text.strip():
        return _Table(path, [], [], [])
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=lambda each: len(next(csv.reader([first], delimiter=each), [])))
    lines = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    header = [name.strip() for name in next(lines, [])]
    if len(header) < 2 or len({*header}) < len(header):
        raise SourceError(f"{path} has no header of at least two columns, each with a name of its own")
    table = _Table(path, header, [], numbers := [])
    for line in lines:
        cells = [cell.strip() for cell in line]
        if cells == header:
            table.notes["its header comes again in the middle: rows were appended to an older file"] = None
        elif len(cells) > len(header):
            shown = ", ".join(cells)[:200]
            raise SourceError(f"{path}, line {lines.line_num}: {len(cells)} cells below {len(header)} columns: {shown}")
        elif any(cells):
            table.rows.append(dict(zip(header, [*cells, *[None] * (len(header) - len(cells))], strict=True)))
            numbers.append(lines.line_num)
    _read_numbers(table, is_comma_free=delimiter != ",")
    return table


def _read_numbers(table: _Table, *, is_comma_free: bool) -> None:
    """Read the texts that are numbers. `is_comma_free`: no comma stands between cells, so that one may be decimal."""
    texts = {cell for row in table.rows for cell in row.values() if isinstance(cell, str)}
    has_commas, has_dots = (any(sign.fullmatch(text) for text in texts) for sign in DECIMAL_SIGNS.values())
    if has_commas and has_dots:
        raise SourceError(f"{table.path} has numbers with decimal commas and with decimal dots: write one of them")
    if not has_commas and not has_dots and is_comma_free:
        has_commas, dots = (any(re.fullmatch(rf"[-+]?\d+{sign}\d+", text) for text in texts) for sign in (",", r"\."))
        if has_commas and dots:
            raise SourceError(
                f"{table.path} has numbers like 1,000 and 1.000: which sign is decimal? write four decimals"
            )
    decimal, group = (",", ".") if has_commas else (".", ",")
    thousands = re.compile(rf"[-+]?\d{{1,3}}(?:\{group}\d{{3}})+(?:\{decimal}\d*)?")
    if has_commas:
        table.notes["its numbers have decimal commas"] = None
    for row in table.rows:
        for column, text in row.items():
            if isinstance(text, str):
                plain = text.replace(group, "") if thousands.fullmatch(text) else text
                number = parse_number(plain.replace(decimal, "."))
                row[column] = (text or None) if isinstance(number, str) else number


def _parquet(path: Path) -> _Table:
    """Return a file of Parquet, by pyarrow."""
    try:
        import pyarrow.parquet as pq  # an extra of its own
    except ModuleNotFoundError as error:
        raise SourceError(
            f"{path} needs pyarrow: pip install pyarrow; or write CSV, by pandas: read_parquet(…).to_csv(…)"
        ) from error
    file, size = pq.ParquetFile(path), path.stat().st_size
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    unpacked = max(file.metadata.num_rows, sum(group.total_byte_size for group in groups) // MOST_UNPACKED)
    if unpacked > size:
        raise SourceError(f"{path} has {file.metadata.num_rows:,} rows, which repeat one another: no training's are so")
    texts = [column.name for column in file.schema_arrow if str(column.type) in ("string", "large_string", "binary")]
    table = pq.ParquetFile(path, read_dictionary=texts).read()
    columns = [[cell for chunk in column.chunks for cell in _cells(chunk)] for column in table.columns]
    rows = [dict(zip(table.column_names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return _Table(path, table.column_names, rows, range(1, len(rows) + 1))


def _cells(chunk: Any) -> list[Cell]:
    """Return the values of an array of Arrow's. Equal texts of a dictionary are one object, however often they come."""
    if hasattr(chunk, "dictionary"):
        values = [_plain(value) for value in chunk.dictionary.to_pylist()]
        return [None if index is None else values[index] for index in chunk.indices.to_pylist()]
    return [_plain(cell) for cell in chunk.to_pylist()]


def _plain(cell: object) -> Cell:
    match cell:
        case None | int() | float() | str():
            return cell
        case Decimal():
            return float(cell)
        case datetime():
            return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp()
        case date():
            return cell.isoformat()
    return str(cell)


# Columns


def _choose_layout(table: _Table, requested_names: set[str], requested_step: str | None) -> _Layout:
    """Return the layout. Raises `SourceError` if rows could be points of a run or runs."""
    by_lower = {name.lower(): name for name in reversed(table.header)}

    def first(names: Iterable[str]) -> str | None:
        return next((by_lower[name] for name in names if name in by_lower), None)

    step, key, run = first((*STEP_NAMES, "epoch")), first(KEY_COLUMNS), first(RUN_COLUMNS)
    values = [name for name in table.header if VALUE.fullmatch(name.lower())]
    time, part, state = first(TIME_COLUMNS), first(PART_COLUMNS), first(STATE_COLUMNS)
    if requested_step in table.header:
        step = requested_step
    if all(CHART_DASH in name for name in table.header[1:]):
        charts = {name: (run, metric) for name in table.header[1:] for run, _, metric in [name.rpartition(CHART_DASH)]}
        return _Layout(
            name="a chart (a column for each run, NAME - METRIC)",
            step=table.header[0],
            time=None,
            runs=[],
            metrics={name: chart for name, chart in charts.items() if not name.endswith(CHART_BOUNDS)},
            left_out=[metric for _, metric in charts.values() if metric.endswith(CHART_BOUNDS)],
        )
    by_setting = {SETTING_PREFIX.sub("", name): column for name, column in by_lower.items()} | by_lower
    settings = [by_setting[name] for name in SETTING_COLUMNS if name in by_setting]
    settings += [name for name in table.header if name in requested_names and name not in settings]
    runs = [name for name in dict.fromkeys((*((run,) if run else ()), *settings)) if name not in (step, key)]
    if values and key is not None:
        return _Layout(
            name=f"a long table ({key} names the metric of each row)",
            step=step,
            time=time,
            runs=[name for name in runs if name not in values],
            metrics=dict.fromkeys(values, (None, "")),
            key=key,
            part=part,
            is_shared=True,
        )
    if values and {*table.header} <= {step, time, *values, *runs}:
        stem = table.path.stem
        match = CURVE_FILE.fullmatch(stem)
        run, metric = (match["run"], match["metric"]) if match else (None, stem)
        if "name.candidate" in parse_name(metric):  # the file of a chart of one metric, named after its run
            run, metric = stem, values[0]
        return _Layout(
            name="one curve", step=step, time=time, runs=runs, metrics={values[0]: (run, metric)}, is_shared=True,
        )  # fmt: skip
    varied = [by_setting[name] for name in VARIED_COLUMNS if name in by_setting and by_setting[name] not in runs]
    rates = [name for name in varied if name in map(by_setting.get, RATE_NAMES)]
    cells = defaultdict[tuple[Cell, ...], set[Cell]](set)  # of each run and column
    for row in table.rows:
        for name in varied:
            cells[*(row[column] for column in runs), name].add(row[name])
    changing = {key[-1] for key, found in cells.items() if len(found) > 1 or None in found}
    constant = [name for name in varied if name not in changing]
    epochs = [row[step] for row in table.rows] if step is not None and step.lower() == "epoch" else []
    if any(isinstance(cell, float) and math.isfinite(cell) and not cell.is_integer() for cell in epochs):
        step = None  # it counts in parts: then it is a metric, and steps are numbered
    elif step is None and rates and not runs and not {*rates} & {*constant}:
        raise SourceError(
            f"{table.path} names neither steps nor runs, and {rates[0]} differs between its rows: use --map "
            f"step=COLUMN if they are points of a run, --map lr=config.{rates[0]} if each is a run"
        )
    elif step is None and (runs or rates):
        constant = varied
    parts = [part] if part else []
    if step is not None and run is None and _repeat_steps(table.rows, [*runs, *parts, *constant], step):
        choices = (*([name] for name in varied), varied)
        splits = [names for names in choices if not _repeat_steps(table.rows, [*runs, *parts, *names], step)]
        # Into the fewest runs: a schedule may differ at each step, too.
        constant += min(splits, key=lambda names: len({tuple(map(row.get, names)) for row in table.rows}), default=[])
    runs += [name for name in varied if name in constant]
    return _Layout(
        name="a table of runs" if step is None else "a table of points",
        step=step,
        time=time,
        runs=runs,
        metrics={name: (None, name) for name in table.header if name not in (step, part, time, *runs)},
        part=part,
        state=state,
    )


def _repeat_steps(rows: Sequence[Row], runs: Sequence[str], step: str) -> bool:
    """Return whether one step comes twice with one metric: several runs are mixed."""
    keys = [
        (*(row[column] for column in runs), row[step], name)
        for row in rows
        for name, cell in row.items()
        if cell is not None and name not in runs and name != step
    ]
    return len({*keys}) < len(keys)


# Runs


def _add_rows(
    table: _Table, layout: _Layout, way: Path, settings: Mapping[str, Any], runs: dict[tuple[object, ...], SourceRun]
) -> None:
    """Add what a table says to the runs of its folder."""
    run_column = next((name for name in layout.runs if name.lower() in RUN_COLUMNS), None)
    # Lightning writes `version_3/metrics.csv`: there the folder is the run.
    is_folder = settings or table.path.stem == "metrics" or layout.is_shared
    stem = table.path.stem if "name.candidate" in parse_name(table.path.stem) else (way / table.path.stem).as_posix()
    of_file = way.as_posix() if is_folder else stem
    changed_at = table.path.stat().st_mtime
    measured = {name for name in layout.metrics if any(as_number(row[name]) is not None for row in table.rows)}
    without_values: dict[tuple[object, ...], None] = {}
    for line, row in zip(table.lines, table.rows, strict=True):
        labels = {name: row[name] for name in layout.runs if row[name] is not None}
        name = str(labels[run_column]) if run_column in labels else "/".join((of_file, *map(str, labels.values())))
        without_values.pop((name, *labels.items()), None)
        if all(as_number(row[column]) is None for column in measured):
            without_values[(name, *labels.items())] = None
        values: dict[int, dict[str, float]] = {}
        for column, (of_column, metric) in layout.metrics.items():
            cell = row[column]
            if cell is None:
                continue
            key = (of_column or name, *labels.items())
            if (run := runs.get(key)) is None:
                run = runs[key] = SourceRun(
                    name=of_column or name, config={**settings, **labels}, sessions=([],), step_field=layout.step,
                    not_numbers={*layout.left_out}, notes=tuple(table.notes),
                )  # fmt: skip
            if column == layout.state and isinstance(cell, str):
                run.state = STATES.get(cell.lower(), ExternalState.FAILED)
            if layout.key is not None:
                metric = str(row[layout.key])
            if layout.part is not None and row[layout.part] is not None:
                metric = f"{row[layout.part]}/{metric}"
            if layout.step is None:
                step = len(run.sessions[0])
            elif row[layout.step] is None and layout.key is not None:
                run.config[metric] = cell  # it was set, and belongs to no step
                continue
            else:
                step = _step(row[layout.step], layout, table.path, line)
            value = as_number(cell)
            if value is not None:
                if id(run) not in values:
                    values[id(run)] = {}
                    moment = _time(row, layout) or changed_at
                    run.sessions[0].append(SourcePoint(at=moment, step=step, metrics=values[id(run)]))
                values[id(run)][metric] = value
            elif column in measured and layout.key is None:
                run.not_numbers.add(f'{metric} at step {step} of {run.name} ("{str(cell)[:40]}")')
            elif metric in labels or metric in settings or metric in run.not_numbers:
                continue
            elif run.config.setdefault(metric, str(cell)) != str(cell):  # a text that stays is a setting
                del run.config[metric]
                run.not_numbers.add(metric)
    for run in filter(None, map(runs.get, without_values)):
        run.notes = (*run.notes, "its last rows have no number; pandas writes NaN so: a divergence needs na_rep='nan'")
    for run in runs.values():
        if layout.step is None and len(run.sessions[0]) > 1:
            run.notes = (
                *table.notes,
                "no column is known as its step: its rows are numbered, unless by --map step=COLUMN",
            )


def _step(cell: Cell, layout: _Layout, path: Path, line: int) -> int:
    value = as_number(cell)
    if value is None or not 0 <= value <= LARGEST_STEP or not value.is_integer():
        raise SourceError(f"{path}, line {line}: {layout.step}={cell!r} is not a step; it is read as {layout.name}")
    return int(value)


def _time(row: Row, layout: _Layout) -> float:
    """Return seconds since 1970; 0 if the row has no time. Some tools write milliseconds."""
    cell = row[layout.time] if layout.time is not None else None
    if isinstance(cell, str):
        try:
            cell = datetime.fromisoformat(cell).timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0
    value = as_number(cell) or 0.0
    return value / 1000 if 1e11 < value < 1e14 else value if 1e8 < value <= 1e11 else 0.0


def read_hyperparameters(path: Path) -> dict[str, Any]:
    """Return Lightning's `hparams.yaml`. What its tags make a tuple, an object or a name of Python is a list, a mapping
    or a text."""
    if not path.is_file():
        return {}
    with reading(path, "YAML"):
        document = yaml.load(PYTHON_TAG.sub(r"\1", path.read_text("utf-8")), SpecLoader)  # noqa: S506 - a SafeLoader
        return {str(name): value for name, value in document.items()} if isinstance(document, dict) else {}
