"""CSV: a table of points, of one run or of many, or a table with a row for each run.

A run is told apart by a column that names it (`run`, `run_id`, …), else by the columns that say its candidate and seed;
by its learning rate where that stays the same over a run, or a step comes more than once without it: else it is a
schedule, which is a metric. `hparams.yaml` beside it, as Lightning's logger writes, is the configuration.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from api.imports.source import ReadRequest, SourceError, SourcePoint, SourceRun, as_number, find_files
from orchestrator.specs.text import SpecLoader

RUN_COLUMNS = ("run", "run_id", "run_name", "runid", "name", "id")
SETTING_COLUMNS = ("experiment", "candidate", "optimizer", "optim", "opt", "optimizer_name", "method", "algorithm",
                   "seed", "random_seed", "workload", "task", "dataset", "model")  # fmt: skip
RATE_COLUMNS = ("lr", "learning_rate", "peak_lr", "max_lr", "base_lr")
MOST_TEXT = 40
"""Characters of a cell that a message shows."""
STEP_COLUMNS = ("step", "global_step", "_step", "steps", "iteration", "iter", "it", "update", "epoch")


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """The runs of every file."""
    for path, way in find_files(request.places, "*.csv"):
        yield from _read_file(path, way, {name.removeprefix("config.") for name in request.fields})


def _read_file(path: Path, way: Path, asked: set[str]) -> Iterator[SourceRun]:
    header, rows = _rows(path)
    by_lower = {name.lower(): name for name in reversed(header)}
    steps = (by_lower[name] for name in STEP_COLUMNS if name in by_lower)
    step_column = next((name for name in steps if not _has_fractions(rows, name)), None)
    run_columns = [by_lower[name] for name in RUN_COLUMNS if name in by_lower][:1]
    settings = run_columns + [by_lower[name] for name in SETTING_COLUMNS if name in by_lower]
    settings += [name for name in header if name in asked and name not in settings and name != step_column]
    rates = [by_lower[name] for name in RATE_COLUMNS if name in by_lower and by_lower[name] not in settings]
    if (
        step_column is None
        or any(_is_constant_per_run(rows, settings, name) for name in rates)
        or (not run_columns and _repeat_steps(rows, settings, step_column))
    ):
        settings += rates
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in settings), []).append(row)
    used = {*settings, step_column}
    measured = {
        column
        for row in rows
        for column, text in row.items()
        if column not in used and text != "" and as_number(_value(text)) is not None
    }
    beside = _hyperparameters(path.parent / "hparams.yaml")
    for key, group in groups.items():
        setting = {name: _value(text) for name, text in zip(settings, key, strict=True) if text != ""}
        # Lightning writes `version_3/metrics.csv`: there the folder is the run.
        name = way.as_posix() if beside or path.stem == "metrics" else path.stem
        if key:
            name = str(setting.get(run_columns[0], name)) if run_columns else "/".join((name, *filter(None, key)))
        yield _run(path, name, {**beside, **setting}, group, step_column, set(settings), measured)


def _rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=first.count)
            lines = csv.reader(file, delimiter=delimiter)
            header = [name.strip() for name in next(lines, [])]
            if len(header) < 2 or len({*header}) < len(header):
                raise SourceError(f"{path} has no header of at least two columns, each with a name of its own")
            rows = []
            for number, line in enumerate(lines, start=2):
                if len(line) > len(header):
                    raise SourceError(f"{path}, line {number}: {len(line)} cells below {len(header)} columns")
                cells = [cell.strip() for cell in line] + [""] * (len(header) - len(line))
                if any(cells):
                    rows.append(dict(zip(header, cells, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path} cannot be read as CSV: {error}") from error
    if not rows:
        raise SourceError(f"{path} has no rows")
    return header, rows


def _has_fractions(rows: Sequence[Mapping[str, str]], column: str) -> bool:
    """Whether a column counts in parts, as epochs often do: then it is a metric, and steps are numbered."""
    values = (_value(row[column]) for row in rows)
    return any(isinstance(value, float) and math.isfinite(value) and not value.is_integer() for value in values)


def _is_constant_per_run(rows: Sequence[Mapping[str, str]], settings: Sequence[str], column: str) -> bool:
    """Whether a column has one value in each run."""
    found: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        found.setdefault(tuple(row[each] for each in settings), set()).add(row[column])
    return all(len(each) == 1 and "" not in each for each in found.values())


def _repeat_steps(rows: Sequence[Mapping[str, str]], settings: Sequence[str], step_column: str) -> bool:
    """Whether one step comes with several learning rates, or twice with one metric: several runs are mixed."""
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        for name, text in row.items():
            if text and name not in settings and name != step_column:
                place = (*(row[each] for each in settings), row[step_column], name)
                if place in seen:
                    return True
                seen.add(place)
    return False


def _run(
    path: Path,
    name: str,
    config: Mapping[str, Any],
    rows: Sequence[Mapping[str, str]],
    step_column: str | None,
    settings: set[str],
    measured: set[str],
) -> SourceRun:
    """`measured`: the columns that have a number anywhere in the file, in which a text is no setting."""
    at = path.stat().st_mtime
    points, texts, not_numbers = [], dict[str, set[str]](), list[str]()
    for number, row in enumerate(rows):
        step = as_number(_value(row[step_column])) if step_column is not None else float(number)
        if step is None or not step >= 0 or step == float("inf"):
            raise SourceError(f"{path}: {step_column}={row[step_column or '']!r} is no step")
        metrics = {}
        for column, text in row.items():
            if text == "" or column == step_column or column in settings:
                continue
            if (value := as_number(_value(text))) is not None:
                metrics[column] = value
            elif column in measured:
                not_numbers.append(f'{column} at step {step:g} of {name} ("{text[:MOST_TEXT]}")')
            else:
                texts.setdefault(column, set()).add(text)
        if metrics:
            points.append(SourcePoint(at=at, step=int(step), metrics=metrics))
    constant = {column: next(iter(found)) for column, found in texts.items() if len(found) == 1}
    return SourceRun(
        source_id=None,
        name=name,
        config={**constant, **config},
        sessions=(points,),
        started_at=at,
        ended_at=at,
        step_field=step_column,
        not_numbers=[*sorted(texts.keys() - constant.keys()), *not_numbers],
    )


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            if "_" not in text:
                return kind(text)
        except ValueError:
            continue
    return text


class _HyperparameterLoader(SpecLoader):
    """Takes what Python's own tags mark, as of tuples, for what it looks like, and makes no object of it."""


def _construct_plain(loader: _HyperparameterLoader, tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return tag if node.value == "" else node.value


_HyperparameterLoader.add_multi_constructor("tag:yaml.org,2002:python/", _construct_plain)


def _hyperparameters(path: Path) -> dict[str, Any]:
    try:
        found = yaml.load(path.read_text("utf-8"), _HyperparameterLoader)  # noqa: S506 - a SafeLoader
    except OSError:
        return {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SourceError(f"{path} cannot be read as YAML: {error}") from error
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}
