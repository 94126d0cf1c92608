"""The time of the table of all runs on SQLite, with 100,000 runs of the bench and 2,000 external ones.

    python -m benchmarks.all_runs [--runs 100000] [--output benchmarks/results/all-runs.json]

Median and slowest of seven, of the whole page as HTML, rendered in this process.
Each run has a real run's specification, which stands for its result, too; a filter on a part of them reads all.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import sqlalchemy as sa
from fastapi import FastAPI
from starlette.testclient import TestClient

from benchmarks.result_file import write_result
from dashboards.pages.all_runs import all_runs_pages
from orchestrator.store.database import Database
from orchestrator.store.run_table import RunTable
from orchestrator.store.tables import (
    attempts,
    experiments,
    external_experiments,
    external_runs,
    results,
    run_specs,
    runs,
)
from tests.factories.specification import made_spec

VIEWS = {
    "first page": {},
    "filter: lr, optimizer and model": {"q": "lr<0.01 and optimizer=adapm and model~llama"},
    "filter that finds nothing": {"q": "candidate~nobody"},
    "sorted by validation loss": {"sort": "val_loss"},
    "page in the middle": {"after": "e0050-0500"},
    "grouped by candidate": {"group": "candidate"},
    "filter on state": {"q": "state=finished and seed<3"},
    "filter on a part of specifications": {"q": "spec.workload.budget.steps>100"},
}
EACH = 1_000
"""Runs of an experiment."""


def fill(database: Database, count: int) -> None:
    """Ended runs of many experiments, and a few external ones."""
    spec = made_spec().model_dump_json()
    models, optimizers = ("gpt2-124m", "llama-60m", "llama-130m"), ("adamw", "adapm", "muon", "lion")
    with database.writing() as connection:
        for number in range(count // EACH):
            name = f"e{number:04}"
            head = {"number": number + 1, "id": name, "name": f"experiment {number}", "kind": "comparison"}
            details = {"spec": "{}", "spec_hash": "x", "created_at": 1e9 + number}
            connection.execute(sa.insert(experiments), head | details)
            rows = [
                {
                    "id": f"{name}-{run:04}", "experiment_id": name, "experiment_number": number + 1, "position": run,
                    "candidate": optimizers[run % 4], "optimizer": optimizers[run % 4], "model": models[run % 3],
                    "lr": (run % 7 + 1) * 2e-3, "seed": run % 10, "cpus": 1, "gpus": 0, "steps_total": 100,
                    "created_at": 1e9 + number, "status": "succeeded", "available_at": 0.0, "ended_at": 2e9,
                    "last_event": 1, "last_val_loss": 3 + (run * 7919 % 1000) / 1000,
                }
                for run in range(EACH)
            ]  # fmt: skip
            connection.execute(sa.insert(runs), rows)
            attempted = [
                {
                    "run_id": row["id"], "attempt": 1, "token_hash": "x", "expires_at": 0.0, "leased_at": 0.0,
                    "ended_at": 2e9, "outcome": "succeeded",
                }
                for row in rows
            ]  # fmt: skip
            result_fields = {"attempt": 1, "recorded_at": 2e9, "verdict": "converged", "result": spec}
            connection.execute(sa.insert(attempts), attempted)
            connection.execute(sa.insert(results), [result_fields | {"run_id": row["id"]} for row in rows])
            connection.execute(sa.insert(run_specs), [{"run_id": row["id"], "spec": spec} for row in rows])
        connection.execute(sa.insert(external_experiments), {"number": 1, "id": "x", "name": "x", "created_at": 1e9})
        metrics = json.dumps({"val_loss": {"last": 3.0}})
        rows = [
            {
                "id": f"x{row}", "experiment_number": 1, "candidate": "muon", "lr": 0.1, "config": "{}", "tags": "[]",
                "source": "log", "state": "finished", "state_at": 0.0, "started_at": 0.0, "created_at": 1e9 + row / 100,
                "updated_at": 0.0, "lines": 1, "torn_lines": 0, "metrics": metrics,
            }
            for row in range(2_000)
        ]  # fmt: skip
        connection.execute(sa.insert(external_runs), rows)


def milliseconds(call: Callable[[], object]) -> list[float]:
    """Return the milliseconds of seven calls, after one to warm up."""
    call()
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def main() -> None:
    """Print and keep a line for each view."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/bench.db")
        database.migrate()
        fill(database, asked.runs)
        app = FastAPI()
        app.include_router(all_runs_pages(RunTable(database)))
        views = {}
        with TestClient(app) as browser:
            for name, view in VIEWS.items():
                assert browser.get("/runs", params=view).status_code == 200
                times = milliseconds(lambda view=view: browser.get("/runs", params=view))  # type: ignore[misc]
                views[name] = {"median_ms": round(median(times), 1), "slowest_ms": round(max(times), 1)}
                print(f"{name:>36}: median {median(times):6.1f} ms, slowest {max(times):6.1f} ms", flush=True)
        database.close()
    if asked.output:
        write_result(asked.output, "all_runs", {"runs": asked.runs, "external_runs": 2_000, "pages": views})


if __name__ == "__main__":
    main()
