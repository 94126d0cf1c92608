"""Trackio: the SQLite file of a project, which it keeps below `~/.cache/huggingface/trackio`.

Metrics of the machine have a time and no step: theirs is the number of the sample. Trackio does not say how a run
ended.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from api.imports.source import (
    ReadRequest,
    SourcePoint,
    SourceRun,
    copied_database,
    find_files,
    reading,
    split_metrics,
)


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """The runs of every project."""
    for path, _ in find_files(request.places, "*.db"):
        with (
            reading(path, "a project of Trackio's (one of MLflow's is imported by `import mlflow`)"),
            copied_database(path) as copy,
            closing(sqlite3.connect(copy)) as database,
        ):
            database.row_factory = sqlite3.Row
            yield from _read_project(path, database)


def _read_project(path: Path, database: sqlite3.Connection) -> Iterator[SourceRun]:
    rows = _group_by_run(database.execute("select * from metrics order by id"))
    configs = {_key(row): row for row in _rows_of_table(database, "configs")}
    system = _group_by_run(_rows_of_table(database, "system_metrics"))
    for key in dict.fromkeys((*configs, *rows)):
        mine, samples = rows.get(key, []), system.get(key, [])
        first = configs.get(key) or mine[0]
        config = json.loads(configs[key]["config"]) if key in configs else {}
        not_numbers: set[str] = set()
        points = [
            SourcePoint(
                at=_time(row["timestamp"]), step=row["step"],
                metrics=split_metrics(json.loads(row["metrics"]), not_numbers),
            )
            for row in mine
        ]  # fmt: skip
        for row in samples:
            values = {f"system/{name}": value for name, value in json.loads(row["metrics"]).items()}
            metrics = split_metrics(values, not_numbers)
            points.append(SourcePoint(at=_time(row["timestamp"]), step=0, metrics=metrics))
        own = {name: value for name, value in config.items() if name.startswith("_") and value is not None}
        facts: dict[str, Any] = {name.strip("_").lower(): value for name, value in own.items()}
        yield SourceRun(
            source_id=f"{path.stem}/{key}",
            name=first["run_name"],
            config={name: value for name, value in config.items() if not name.startswith("_")},
            facts={"project": path.stem, **facts},
            sessions=(points,),
            started_at=min((point.at for point in points), default=0.0),
            ended_at=max((point.at for point in points), default=0.0),
            not_numbers=not_numbers,
        )


def _group_by_run(rows: Iterable[sqlite3.Row]) -> dict[str, list[sqlite3.Row]]:
    found: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append(row)
    return found


def _key(row: sqlite3.Row) -> str:
    """What a run is told by; older files have its name alone."""
    return str(row["run_id"] if "run_id" in row.keys() else row["run_name"])  # noqa: SIM118 - a row is no mapping


def _rows_of_table(database: sqlite3.Connection, table: str) -> list[sqlite3.Row]:
    known = database.execute("select 1 from sqlite_master where type = 'table' and name = ?", (table,)).fetchone()
    return database.execute(f"select * from {table} order by id").fetchall() if known else []  # noqa: S608 - ours


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
