"""Removal: what deleted experiments leave on the disk goes first, then their rows; a killed one is taken up again.

A run's folder holds its checkpoints, its logs and its spool. The copy in MLflow is left: it is MLflow's to delete.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from orchestrator.jobs import ExperimentId
from orchestrator.store.admin.deletion import claim_removals, has_begun, remove_experiment, remove_runs, runs_left
from orchestrator.store.database import Database
from worker.errors import RemoteFolderError
from worker.remote.folder import RemoteFolder

log = structlog.get_logger(__name__)

RUNS_AT_ONCE = 20
"""The runs in one transaction: some hundred runs' points are many megabytes, and others want to write meanwhile."""


def remove_deleted(
    database: Database,
    runs_folder: Path,
    stopping: Callable[[], bool] = lambda: False,
    remote: RemoteFolder | None = None,
) -> tuple[ExperimentId, ...]:
    """Remove for good what can no longer be restored; returns what is gone. A folder that cannot be removed, or whose
    disk is away, keeps its experiment's rows, to be tried again."""
    removed = []
    for experiment_id in claim_removals(database):
        try:
            if _remove(database, runs_folder, experiment_id, stopping, remote):
                removed.append(experiment_id)
        except (OSError, RemoteFolderError) as error:
            log.warning("a deleted experiment cannot be removed now", experiment=experiment_id, error=str(error))
    if removed:
        log.info("deleted experiments removed for good", experiments=removed)
    return tuple(removed)


def _remove(
    database: Database,
    runs_folder: Path,
    experiment_id: ExperimentId,
    stopping: Callable[[], bool],
    remote: RemoteFolder | None,
) -> bool:
    """Return whether all of it is gone: not where the process is about to end."""
    # Where the folder of all runs is away and a run has begun, its disk is not mounted, and what lies on it would
    # outlive the rows that know of it. With a remote folder every machine has its own, and this one perhaps none.
    if remote is None and not (
        runs_folder.is_dir() or (runs_folder.parent.is_dir() and not has_begun(database, experiment_id))
    ):
        raise FileNotFoundError(
            f"the folder of all runs, {runs_folder}, is not there; mount its disk, or make an empty folder in its "
            "place where nothing is left of it"
        )
    while run_ids := runs_left(database, experiment_id, RUNS_AT_ONCE):
        for run_id in run_ids:
            if stopping():
                return False
            _remove_folder(runs_folder / run_id)
            if remote is not None:
                remote.remove(remote.sizes(run_id))
        remove_runs(database, run_ids)
    data_folder = runs_folder.parent
    _remove_folder(data_folder / "sweeps" / experiment_id)
    (data_folder / "logs" / f"sweep-{experiment_id}.log").unlink(missing_ok=True)
    return remove_experiment(database, experiment_id)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
