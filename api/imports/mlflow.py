"""MLflow: a tracking server, a database or a folder `mlruns`, read by MLflow's own client."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.imports.source import ReadRequest, SourceError, SourcePoint, SourceRun
from orchestrator.external_runs import ExternalState

MOST_RUNS = 1_000
"""In one answer of MLflow's."""
STATES = {"FINISHED": ExternalState.FINISHED, "RUNNING": ExternalState.RUNNING, "SCHEDULED": ExternalState.RUNNING}


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """The runs of all experiments of each store."""
    # New versions of MLflow read folders on request alone, and wait minutes for a server that is not there.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    try:
        from mlflow.exceptions import MlflowException  # seconds, and an extra of its own
        from mlflow.tracking import MlflowClient
    except ModuleNotFoundError as error:
        raise SourceError("this needs MLflow; run: pip install mlflow-skinny") from error
    for place in request.places:
        try:
            yield from _read_store(MlflowClient(_address(place)))
        except (MlflowException, OSError) as error:
            raise SourceError(f"MLflow cannot read {place}: {error}") from error


def _address(place: str) -> str:
    path = Path(place)
    if "://" in place:
        return place
    if not path.exists():
        raise SourceError(f"{place} does not exist; name a folder, a database, or an address: http://…, sqlite:///…")
    return f"sqlite:///{path.resolve()}" if path.is_file() else path.resolve().as_uri()


def _read_store(client: Any) -> Iterator[SourceRun]:
    names = {each.experiment_id: each.name for each in client.search_experiments()}
    token = None
    while names:
        found = client.search_runs([*names], max_results=MOST_RUNS, page_token=token)
        for run in found:
            yield _run(client, run, names[run.info.experiment_id])
        if not (token := found.token):
            return


def _run(client: Any, run: Any, experiment: str) -> SourceRun:
    at_step: dict[tuple[int, float], dict[str, float]] = {}
    for name in run.data.metrics:
        for each in client.get_metric_history(run.info.run_id, name):
            at_step.setdefault((max(each.step, 0), each.timestamp / 1000), {})[name] = each.value
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.log-model")}
    began = (run.info.start_time or 0) / 1000
    return SourceRun(
        source_id=run.info.run_id,
        name=run.info.run_name or run.info.run_id,
        config={name: _value(text) for name, text in run.data.params.items()},
        facts={"project": experiment, "id": run.info.run_id, "user": run.info.user_id, "tags": tags},
        tags=tuple(f"{name}={value}" for name, value in tags.items() if not name.startswith("mlflow."))[:100],
        sessions=(
            tuple(SourcePoint(at=at, step=step, metrics=metrics) for (step, at), metrics in sorted(at_step.items())),
        ),
        state=STATES.get(run.info.status, ExternalState.FAILED),
        started_at=began,
        ended_at=(run.info.end_time or 0) / 1000 or max((at for _, at in at_step), default=began),
    )


def _value(text: str) -> int | float | str:
    """MLflow keeps parameters as texts."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
