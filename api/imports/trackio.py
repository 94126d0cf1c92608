"""Trackio: the SQLite file of a project, which it keeps below `~/.cache/huggingface/trackio`.

Metrics of the machine have no step of the training, and are left out. Trackio does not say how a run ended.
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
            for table in ("configs", "metrics"):
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
                    moment = datetime.fromisoformat(row["timestamp"]).timestamp()
                    metrics = split_metrics(json.loads(row["metrics"]), run.not_numbers)
                    run.sessions[0].append(SourcePoint(at=moment, step=int(row["step"]), metrics=metrics))
            yield from runs.values()
