"""The copy in MLflow, for people who live there. It is fed by the outbox and is never on a run's path.

    experiment `bench/<name>`  ─  parent run = our experiment  ─<  child runs `<candidate>-<model>-lr<rate>-s<seed>`

Every delivery may be repeated, and may have been cut anywhere: runs are found again by their `bench.*` tags,
parameters are written with the values that they have, MLflow ignores a metric that it already holds, and an artifact
replaces itself. So a delivery is always done from its beginning, and an entry leaves the outbox after its last call.

MLflow keeps every value that it ever got, by its moment. So a run that has ended again, after a retry, gets a
new copy, and the one of its earlier ending goes into MLflow's trash: no step has two values, no tag is of yesterday.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import structlog
from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from orchestrator.columns import FIELDS, STEP, Columns
from orchestrator.export.cells import Format, leaves
from orchestrator.export.files import write_series
from orchestrator.jobs import RunStatus
from orchestrator.records import SECONDS_PER_HOUR, AnyExperiment, DamagedExperiment, RunRecord
from orchestrator.services.experiments import Experiments
from orchestrator.services.runs import Runs
from orchestrator.store.outgoing.exports import OutboxEntry
from worker.files import atomic_replacement
from worker.records.protocol import CheckpointNotice

log = structlog.get_logger(__name__)

BATCH = 1000
"""MLflow's own limit of metrics in one `log_batch`."""
PARAM_BATCH = 100
"""MLflow's own limit of parameters in one `log_batch`."""
PARAM_CHARACTERS = 6000
"""MLflow's limit for a parameter's value."""
TAG_CHARACTERS = 8000
"""MLflow's limit for a tag's value."""
POINT_METRICS = tuple(name for name in FIELDS if name not in (STEP, "tokens"))
"""Tokens are the step times a constant; the Parquet file of the series has them."""
SYSTEM_METRICS = {
    "host_cpu_utilization": ("system/cpu_utilization_percentage", 100.0),
    "gpu_utilization": ("system/gpu_0_utilization_percentage", 100.0),
    "gpu_memory_bytes": ("system/gpu_0_memory_usage_megabytes", 1e-6),
    "gpu_power_watts": ("system/gpu_0_power_usage_watts", 1.0),
}
"""The names and units under which MLflow shows metrics of the machine in a tab of its own."""
SQLITE = "sqlite:///"
ENDED_AS = {RunStatus.SUCCEEDED: "FINISHED", RunStatus.FAILED: "FAILED", RunStatus.CANCELLED: "KILLED"}


def make_store(path: Path) -> None:
    """Make MLflow's SQLite store, whole or not at all; one that is there is left alone.

    MLflow makes its tables one by one: a store whose making was killed would refuse every later start for ever.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f"{path.stem}.*.unfinished*"):
        leftover.unlink(missing_ok=True)
    # The name is another one each time: MLflow remembers, as long as the process lives, which stores it has made.
    with atomic_replacement(path) as unfinished:
        MlflowClient(tracking_uri=f"{SQLITE}{unfinished}").search_experiments(max_results=1)


class MlflowCopy:
    """Writes experiments and runs to one MLflow store."""

    def __init__(
        self,
        experiments: Experiments,
        runs: Runs,
        uri: str,
        artifacts_folder: Path,
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_batch` is called every thousand metrics, so that its caller can renew a lease; what it raises ends
        the delivery."""
        self._experiments, self._runs = experiments, runs
        self._before_batch = before_batch
        if uri.startswith(SQLITE):
            make_store(Path(uri.removeprefix(SQLITE)))
        self._client = MlflowClient(tracking_uri=uri)
        # A server keeps artifacts where its operator said; the embedded store keeps them beside its database.
        self._artifacts = artifacts_folder.as_uri() if uri.startswith("sqlite") else None

    def write(self, entry: OutboxEntry) -> None:
        """Copy what the entry refers to."""
        experiment = self._experiments.get_any(entry.experiment_id)
        folder, parent = self._parent(experiment)
        if entry.run_id is not None:
            run = self._runs.get(entry.run_id)
            if run.status in ENDED_AS:  # one that was queued again is told when it has ended again
                self._write_run(folder, parent, run)
        if experiment.counts.done():
            self._client.set_terminated(parent, "FINISHED", end_time=_milliseconds(experiment.ended_at))

    def _parent(self, experiment: AnyExperiment) -> tuple[str, str]:
        """Return the ids of MLflow's experiment and of the parent run."""
        folder = self._folder(f"bench/{experiment.name}")
        tags = {
            "bench.experiment_id": experiment.id,
            "bench.kind": experiment.kind,
            "bench.spec_hash": experiment.spec_hash,
        }
        if isinstance(experiment, DamagedExperiment):
            tags["bench.damaged"] = experiment.damaged
        parent, new = self._run_id(folder, "bench.experiment_id", experiment, experiment.name, tags)
        # It may have been cut between the two.
        if experiment.spec is not None and (new or not self._client.list_artifacts(parent)):
            self._client.log_text(parent, experiment.spec.model_dump_json(indent=2), "spec.json")
        return folder, parent

    def _write_run(self, folder: str, parent: str, run: RunRecord) -> None:
        tags = {"bench.run_id": run.id, "bench.ended_at": _moment(run), "mlflow.parentRunId": parent}
        name = f"{run.candidate}-{run.model}-lr{run.lr:g}-s{run.seed}"
        # The copies of this run as it ended before; what was cut in making is one of them, too.
        earlier = f"tags.`bench.run_id` = '{run.id}' and tags.`bench.ended_at` != '{_moment(run)}'"
        for old_copy in self._client.search_runs([folder], filter_string=earlier):
            self._client.delete_run(old_copy.info.run_id)
        copy, _ = self._run_id(folder, "bench.run_id", run, name, tags)
        columns = self._runs.series(run.id)
        self._log_metrics(copy, point_metrics(columns, _milliseconds(run.started_at)))
        self._log_metrics(copy, result_metrics(run, _milliseconds(run.ended_at)))
        # MLflow's parameters are flat strings: `workload.budget.steps` → `240`.
        leaves_of_spec = leaves(run.spec.model_dump(mode="json")) if run.spec else ()
        params = {name: value if isinstance(value, str) else json.dumps(value) for name, value in leaves_of_spec}
        self._log_words(copy, params, self._tags(run))
        self._log_artifacts(copy, run, columns)
        self._client.set_terminated(copy, ENDED_AS[run.status], end_time=_milliseconds(run.ended_at))

    def _folder(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            return str(self._client.create_experiment(name, artifact_location=self._artifacts))
        if experiment.lifecycle_stage != "active":
            self._client.restore_experiment(experiment.experiment_id)  # its name is taken for good
        return str(experiment.experiment_id)

    def _run_id(
        self, folder: str, tag: str, record: AnyExperiment | RunRecord, name: str, tags: dict[str, str]
    ) -> tuple[str, bool]:
        """Return the id of the run with that tag, and whether it was made just now."""
        # A child carries its own tag only, so that a search by the parent's tag finds the parent alone.
        matches = self._client.search_runs([folder], filter_string=f"tags.`{tag}` = '{record.id}'", max_results=1)
        if matches:
            return str(matches[0].info.run_id), False
        started_at = record.started_at if isinstance(record, RunRecord) else record.created_at
        moment = _milliseconds(started_at or record.created_at)
        run = self._client.create_run(folder, run_name=name, tags=tags, start_time=moment)
        return str(run.info.run_id), True

    def _log_metrics(self, run_id: str, metrics: "Iterator[tuple[str, float, int, int]]") -> None:
        while batch := [Metric(*metric) for metric in islice(metrics, BATCH)]:
            self._before_batch()
            self._client.log_batch(run_id, metrics=batch)

    def _log_words(self, run_id: str, params: dict[str, str], tags: dict[str, str]) -> None:
        entries = [Param(key, value[:PARAM_CHARACTERS]) for key, value in params.items()]
        for start in range(0, len(entries), PARAM_BATCH):
            self._client.log_batch(run_id, params=entries[start : start + PARAM_BATCH])
        self._client.log_batch(run_id, tags=[RunTag(key, value[:TAG_CHARACTERS]) for key, value in tags.items()])

    def _log_artifacts(self, run_id: str, run: RunRecord, columns: Columns) -> None:
        with tempfile.TemporaryDirectory(prefix="adapm-bench-export-") as folder:
            files = Path(folder)
            if run.spec is not None:
                (files / "spec.json").write_text(run.spec.model_dump_json(indent=2))
            if run.result is not None:
                (files / "result.json").write_text(run.result.model_dump_json(indent=2))
            for checkpoint in self._last_checkpoint(run):
                (files / "checkpoint.json").write_text(checkpoint.model_dump_json(indent=2))
            with (files / "series.parquet").open("wb") as file:
                write_series(lambda _: columns, [run], file, Format.PARQUET)
            self._client.log_artifacts(run_id, folder)

    def _last_checkpoint(self, run: RunRecord) -> tuple[CheckpointNotice, ...]:
        """Return the last one; none of a run that succeeded, whose checkpoints are deleted."""
        return () if run.status is RunStatus.SUCCEEDED else self._runs.checkpoints(run.id)[-1:]

    def _tags(self, run: RunRecord) -> dict[str, str]:
        """Return provenance, and what MLflow's own states cannot say."""
        tags = {
            "bench.candidate": run.candidate,
            "bench.status": run.status.value,
            "bench.outcome": run.state_word(),
            "bench.attempts": str(run.attempt),
        }
        if run.spec is not None:
            tags["bench.spec_hash"] = run.spec.content_hash()
        if run.damaged is not None:
            tags["bench.damaged"] = run.damaged
        for checkpoint in self._last_checkpoint(run):
            tags["bench.checkpoint"] = f"{checkpoint.path} (step {checkpoint.step}, sha256 {checkpoint.sha256})"
        if run.result is None:
            return tags | ({"bench.reason": run.reason} if run.reason else {})
        environment = run.result.environment
        return tags | {
            "bench.verdict": run.result.verdict.value,
            "bench.data_hash": run.result.data_hash,
            "bench.device": environment.device_name,
            "bench.environment": environment.model_dump_json(),
            "bench.commit": environment.commit or "unknown",
        }


def point_metrics(columns: Columns, start: int) -> Iterator[tuple[str, float, int, int]]:
    """Yield (name, value, milliseconds, step) of all that was measured; time is the run's start and its steps'
    since."""
    moments = (start + np.cumsum(np.nan_to_num(columns.column("step_seconds"))) * 1000).round().astype(np.int64)
    for name in POINT_METRICS:
        mask = np.isfinite(columns.column(name))
        rows = columns.column(name)[mask].tolist(), moments[mask].tolist(), columns.step[mask].astype(np.int64).tolist()
        shown, scale = SYSTEM_METRICS.get(name, (name, 1.0))
        for value, moment, step in zip(*rows, strict=True):
            yield shown, scale * value, moment, step


def result_metrics(run: RunRecord, milliseconds: int) -> Iterator[tuple[str, float, int, int]]:
    """Yield every number of the result but its environment's, and the device-hours of all attempts; `result.` stands
    before those that points have, too."""
    step = run.result.steps if run.result else run.step
    if run.result is not None:
        for name, value in leaves(run.result.model_dump(mode="json", exclude={"environment"})):
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"result.{name}" if name in POINT_METRICS else name, float(value), milliseconds, step
    yield "device_hours", run.device_seconds / SECONDS_PER_HOUR, milliseconds, step


def _moment(run: RunRecord) -> str:
    """Return the moment of the run's end, which differs for each of its endings."""
    return repr(run.ended_at)


def _milliseconds(seconds: float | None) -> int:
    return round(1000 * (seconds or 0.0))
