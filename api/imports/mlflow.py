"""MLflow: a tracking server, a database or a folder `mlruns`, read by MLflow's own client."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from api.imports.source import ReadRequest, SourceError, SourcePoint, SourceRun, copied_database, parse_number, reading
from orchestrator.external_runs import ExternalState

STATES = {"FINISHED": ExternalState.FINISHED, "RUNNING": ExternalState.RUNNING, "SCHEDULED": ExternalState.RUNNING}


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """Yield the runs of all experiments of each store."""
    # New versions of MLflow read folders on request alone, and wait minutes for a server that is not there.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    try:
        from mlflow.tracking import MlflowClient  # seconds, and an extra of its own
    except ModuleNotFoundError as error:
        raise SourceError("this needs MLflow; run: pip install mlflow-skinny") from error
    for store in request.places:
        with reading(store, "a store of MLflow's"), _address(store) as address:
            client, project = MlflowClient(address), request.only.get("project", "*")
            experiments = _pages(client.search_experiments)
            names = {found.experiment_id: found.name for found in experiments if fnmatchcase(found.name, project)}
            for run in _pages(partial(client.search_runs, [*names])) if names else ():
                yield _run(client, run, names[run.info.experiment_id])


@contextmanager
def _address(address: str) -> Iterator[str]:
    """Yield an address that MLflow may read: it creates missing files and migrates old databases, so it gets a copy of
    a file, and of a folder one with links to the experiments."""
    path = Path(address.removeprefix("sqlite:///").removeprefix("file://"))
    if "://" in address and not address.startswith(("sqlite:///", "file://")):
        yield address
    elif path.is_file():
        with copied_database(path) as copy:
            yield f"sqlite:///{copy}"
    elif path.is_dir():
        for file in path.rglob("*"):  # MLflow would wait for who writes to a pipe
            if file.exists() and not file.is_file() and not file.is_dir():
                raise SourceError(f"{file} is neither a file nor a folder")
        with tempfile.TemporaryDirectory() as folder:
            for experiment in path.resolve().iterdir():
                (Path(folder) / experiment.name).symlink_to(experiment)
            yield Path(folder).as_uri()
    else:
        raise SourceError(f"{address} does not exist; name a folder, a database, or an address: http://…, sqlite:///…")


def _pages(search: Callable[..., Any]) -> Iterator[Any]:
    """Yield what a search finds, page after page: one has at most 1,000 experiments or runs."""
    token: str | None = ""
    while token is not None:
        page = search(page_token=token or None)
        yield from page
        token = page.token or None


def _run(client: Any, run: Any, experiment: str) -> SourceRun:
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    # A step that nobody gave is 0 in every value.
    stepless = {
        name for name, values in histories.items() if len(values) > 1 and not any(point.step for point in values)
    }
    times = sorted({point.timestamp for name in stepless for point in histories[name]})
    numbers = {timestamp: number for number, timestamp in enumerate(times)}
    logged: dict[tuple[float, int], dict[str, float]] = {}
    for name, values in histories.items():
        for point in values:
            step = numbers[point.timestamp] if name in stepless else max(point.step, 0)
            logged.setdefault((point.timestamp / 1000, step), {})[name] = point.value
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.log-model")}
    note = f"{', '.join(sorted(stepless))}: logged without a step, and numbered in the order of time"
    return SourceRun(
        source_id=run.info.run_id,
        name=run.info.run_name or run.info.run_id,
        config={name: parse_number(text) for name, text in run.data.params.items()},
        facts={"project": experiment, "id": run.info.run_id, "user": run.info.user_id, "tags": tags},
        tags=tuple(f"{name}={value}" for name, value in tags.items() if not name.startswith("mlflow."))[:100],
        sessions=(
            [SourcePoint(at=moment, step=step, metrics=values) for (moment, step), values in sorted(logged.items())],
        ),
        state=STATES.get(run.info.status, ExternalState.FAILED),
        started_at=(run.info.start_time or 0) / 1000,
        ended_at=(run.info.end_time or 0) / 1000,
        notes=(note,) if stepless else (),
    )
