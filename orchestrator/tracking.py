"""The copy in MLflow, for people who live there. It is fed by the outbox and is never on a run's path.

    experiment `bench/<name>`  ─  parent run = our experiment  ─<  child runs `<candidate>-<model>-lr<rate>-s<seed>`

Every delivery may be repeated: runs are found again by their `bench.*` tags, parameters are written with the values
that they have, and MLflow ignores a metric that it already holds.
"""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from orchestrator.errors import OrchestratorError
from orchestrator.jobs import RunStatus
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.service import Bench
from orchestrator.store.database import Database
from orchestrator.store.outbox import Outbox, OutboxEntry
from worker.record import Point, Result

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
DRAIN_SECONDS = 10.0
"""How long a stop waits for what is ready to be exported; the rest is exported after the next start."""
BATCH = 1000
"""MLflow's own limit of metrics in one `log_batch`."""
PARAM_CHARACTERS = 6000
"""MLflow's limit for a parameter's value."""
POINT_METRICS = ("train_loss", "val_loss", "lr", "grad_norm", "step_seconds", "optimizer_seconds", "host_rss_bytes")
RESULT_METRICS = (
    "initial_val_loss",
    "final_val_loss",
    "final_train_loss",
    "parameters",
    "parameter_bytes",
    "optimizer_state_bytes",
    "step_seconds_median",
    "optimizer_seconds_median",
    "tokens_per_second",
)
ENDED_AS = {RunStatus.SUCCEEDED: "FINISHED", RunStatus.FAILED: "FAILED", RunStatus.CANCELLED: "KILLED"}


class Exporter:
    """A thread that delivers the outbox to MLflow. MLflow may be away for hours: entries wait."""

    def __init__(self, bench: Bench, database: Database, uri: str, artifacts_folder: Path) -> None:
        self._outbox = Outbox(database)
        self._bench = bench
        self._uri = uri
        self._artifacts_folder = artifacts_folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlflow-export", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def close(self) -> None:
        """Deliver what is ready, for a short while, then stop."""
        self._stop.set()
        self._thread.join(DRAIN_SECONDS)

    def _run(self) -> None:
        copy: MlflowCopy | None = None
        while True:
            stopping = self._stop.is_set()
            try:
                entries = self._outbox.pending(limit=20)
                if entries:
                    copy = copy or MlflowCopy(self._bench, self._uri, self._artifacts_folder)
            except Exception as error:  # noqa: BLE001 — whatever is wrong with MLflow or SQL, the runs must go on
                log.warning("export is not possible now", error=str(error))
                entries = ()
            for entry in entries:
                self._deliver(copy, entry)
            if stopping and not entries:
                return
            if not entries:
                self._stop.wait(POLL_SECONDS)

    def _deliver(self, copy: "MlflowCopy | None", entry: OutboxEntry) -> None:
        assert copy is not None
        try:
            copy.write(entry)
            self._outbox.delivered([entry.id])
        except Exception as error:  # noqa: BLE001 — it stays in the outbox and is tried again later
            log.warning("export failed, will be tried again", entry=entry.id, tries=entry.tries, error=str(error))
            self._put_back(entry, error)

    def _put_back(self, entry: OutboxEntry, error: Exception) -> None:
        try:
            self._outbox.failed(entry.id, str(error))
        except OrchestratorError as trouble:
            log.warning("the outbox cannot be written", entry=entry.id, error=str(trouble))


class MlflowCopy:
    """Writes experiments and runs to one MLflow store."""

    def __init__(self, bench: Bench, uri: str, artifacts_folder: Path) -> None:
        # MLflow takes a second to import and 100 MB: only a process that exports pays for it.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        self._bench = bench
        self._client = MlflowClient(tracking_uri=uri)
        # A server keeps artifacts where its operator said; the embedded store keeps them beside its database.
        self._artifacts = artifacts_folder.as_uri() if uri.startswith("sqlite") else None

    def write(self, entry: OutboxEntry) -> None:
        """Copy what the entry refers to."""
        experiment = self._bench.experiment(entry.experiment_id)
        folder, parent = self._parent(experiment)
        if entry.run_id is not None:
            self._write_run(folder, parent, self._bench.run(entry.run_id))
        if experiment.counts.done():
            self._client.set_terminated(parent, "FINISHED")

    def _parent(self, experiment: ExperimentRecord) -> tuple[str, str]:
        """The ids of MLflow's experiment and of the parent run."""
        folder = self._folder(f"bench/{experiment.name}")
        tags = {"bench.experiment_id": experiment.id, "bench.kind": experiment.kind}
        parent, new = self._run_id(folder, "bench.experiment_id", experiment.id, experiment.name, tags)
        if new:
            self._client.set_tag(parent, "bench.spec_hash", experiment.spec_hash)
            self._client.log_text(parent, experiment.spec.model_dump_json(indent=2), "spec.json")
        return folder, parent

    def _write_run(self, folder: str, parent: str, run: RunRecord) -> None:
        tags = {"bench.run_id": run.id, "mlflow.parentRunId": parent} | _tags(run)
        copy, _ = self._run_id(
            folder, "bench.run_id", run.id, f"{run.candidate}-{run.model}-lr{run.lr:g}-s{run.seed}", tags
        )
        params = dict(_flat("", run.spec.model_dump(mode="json")))
        self._log(copy, _point_metrics(self._bench.points(run.id), _milliseconds(run.started_at)))
        self._log_params(copy, params)
        if run.result is not None:
            self._log(copy, _result_metrics(run.result, run.device_seconds, _milliseconds(run.ended_at)))
            self._client.log_text(copy, run.result.model_dump_json(indent=2), "result.json")
        self._client.log_text(copy, run.spec.model_dump_json(indent=2), "spec.json")
        self._client.set_terminated(copy, ENDED_AS[run.status], end_time=_milliseconds(run.ended_at))

    def _folder(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=self._artifacts))

    def _run_id(self, folder: str, tag: str, value: str, name: str, tags: dict[str, str]) -> tuple[str, bool]:
        """The id of the run with that tag, and whether it was made just now."""
        # A child carries its own tag only, so that a search by the parent's tag finds the parent alone.
        found = self._client.search_runs([folder], filter_string=f"tags.`{tag}` = '{value}'", max_results=1)
        if found:
            return str(found[0].info.run_id), False
        made = self._client.create_run(folder, run_name=name, tags=tags)
        return str(made.info.run_id), True

    def _log(self, run_id: str, metrics: "Iterator[tuple[str, float, int, int]]") -> None:
        from mlflow.entities import Metric

        batch = [Metric(*metric) for metric in metrics]
        for start in range(0, len(batch), BATCH):
            self._client.log_batch(run_id, metrics=batch[start : start + BATCH])

    def _log_params(self, run_id: str, params: dict[str, str]) -> None:
        from mlflow.entities import Param

        self._client.log_batch(run_id, params=[Param(key, value) for key, value in params.items()])


def _tags(run: RunRecord) -> dict[str, str]:
    """Provenance, and what MLflow's own states cannot say."""
    tags = {"bench.candidate": run.candidate, "bench.status": run.status.value, "bench.attempts": str(run.attempt)}
    if run.result is None:
        return tags
    environment = run.result.environment
    return tags | {
        "bench.verdict": run.result.verdict.value,
        "bench.spec_hash": run.result.spec_hash,
        "bench.data_hash": run.result.data_hash,
        "bench.device": environment.device_name,
        "bench.environment": environment.model_dump_json(),
        "bench.commit": environment.commit or "unknown",
    }


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """`workload.budget.steps` → `240`: MLflow's parameters are flat strings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield prefix, text[:PARAM_CHARACTERS]


def _point_metrics(points: tuple[Point, ...], at: int) -> Iterator[tuple[str, float, int, int]]:
    """(name, value, milliseconds, step) of all that was measured; time is the run's start and its steps' since."""
    for point in points:
        at += round(1000 * (point.step_seconds or 0.0))
        for name in POINT_METRICS:
            if (value := getattr(point, name)) is not None:
                yield name, float(value), at, point.step


def _result_metrics(result: Result, device_seconds: float, at: int) -> Iterator[tuple[str, float, int, int]]:
    for name in RESULT_METRICS:
        if (value := getattr(result, name)) is not None:
            yield name, float(value), at, result.steps
    for name, value in result.peak_memory:
        if value is not None:
            yield f"peak_memory.{name}", float(value), at, result.steps
    yield "device_hours", device_seconds / 3600, at, result.steps


def _milliseconds(seconds: float | None) -> int:
    return round(1000 * (seconds or 0.0))
