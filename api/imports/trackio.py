"""Trackio: the SQLite file of a project, which it keeps below `~/.cache/huggingface/trackio`.

Metrics of the machine have a time and no step: theirs is the number of the sample. Trackio does not say how a run
ended.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

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
    """Yield the runs of every project."""
    for path, _ in find_files(request.places, "*.db"):
        with (
            reading(path, "a project of Trackio's (one of MLflow's is imported by `import mlflow`)"),
            copied_database(path) as copy,
            closing(sqlite3.connect(copy)) as database,
        ):
            database.row_factory = sqlite3.Row
            runs: dict[str, SourceRun] = {}
            for table in ("configs", "metrics", "system_metrics"):
                if table != "metrics" and not list(database.execute(f"pragma table_info({table})")):  # older files
                    continue
                for row in map(dict, database.execute(f"select * from {table} order by id")):  # noqa: S608 - ours
                    key = str(row.get("run_id", row["run_name"]))
                    if key not in runs:
                        name, facts = str(row["run_name"]), {"project": path.stem}
                        runs[key] = SourceRun(source_id=f"{path.stem}/{key}", name=name, facts=facts, sessions=([],))
                    run = runs[key]
                    if table == "configs":
                        for name, value in json.loads(row["config"]).items():
                            if not name.startswith("_"):
                                run.config[name] = value
                            elif value is not None:
                                run.facts[name.strip("_").lower()] = value
                        continue
                    values, step = json.loads(row["metrics"]), int(row.get("step", 0))
                    if table == "system_metrics":
                        values, step = {f"system/{name}": value for name, value in values.items()}, 0
                    moment = datetime.fromisoformat(row["timestamp"]).timestamp()
                    run.sessions[0].append(
                        SourcePoint(at=moment, step=step, metrics=split_metrics(values, run.not_numbers))
                    )
            yield from runs.values()
