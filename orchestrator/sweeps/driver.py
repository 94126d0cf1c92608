"""The driver of one sweep: a process of its own, which may be killed at any moment.

Ray Tune keeps every trial in memory for as long as its process lives (ray#64231), and a search is no part of a service
that has to stay up: so each sweep has a process, which ends with it. What it knows is in the store: it is started again
where it was killed, and goes on (`search.py`). Ray reads its environment while it is imported, so this is imported
after the process has joined Ray.
"""

import logging
import os
import random
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import structlog
from ray import tune

from orchestrator.jobs import ExperimentId
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.store import reads
from orchestrator.store.database import Database
from orchestrator.store.queue import trials
from orchestrator.sweeps.report import sweep_spec
from orchestrator.sweeps.search import AshaPerCandidate, StoreSearch
from orchestrator.sweeps.trial_follower import LOSS, follow, retry_while_away
from orchestrator.sweeps.trials import Parameters, trial_run

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 0.5
SHARE = 0.001
"""The share of a node's own resource, which every node of Ray has once, that a follower occupies instead of a CPU. It
ties the followers to this machine, which is the one that may know the database."""
ENVIRONMENT = {
    # Tune's files for TensorBoard and the like: our store has every point.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


class SweepDriver:
    """Drives one sweep to its end, on a Ray that this process has joined."""

    def __init__(self, database: Database, database_url: str, sweep_id: ExperimentId, folder: Path) -> None:
        """`folder`: where Tune may write while this lives."""
        self._database, self._database_url = database, database_url
        self._sweep_id, self._folder = sweep_id, folder

    def drive(self) -> None:
        """Drive the sweep until it has all of its trials, and all of them have ended."""
        spec, stored_trials = retry_while_away(self._read)
        log.info("sweep begins", sweep=self._sweep_id, trials=spec.run_count(), known=len(stored_trials))
        random.seed(spec.seed)
        np.random.seed(spec.seed)
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            self._tune(spec, stored_trials)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        # A trial that Tune has let go of, because it was stopped or could not be followed, may still be at work.
        while retry_while_away(partial(trials.count_live, self._database, self._sweep_id)):
            time.sleep(SETTLE_SECONDS)
        retry_while_away(partial(trials.close, self._database, self._sweep_id))
        log.info("sweep ended", sweep=self._sweep_id)

    def _tune(self, spec: SweepSpec, stored_trials: dict[int, Parameters]) -> None:
        os.environ.update(ENVIRONMENT)
        # At its end Tune looks for the files of every trial, which it was told not to write, and warns of each.
        logging.getLogger("ray.tune").setLevel(logging.ERROR)

        # The resource that Ray gives this machine alone.
        node_id = ray.get_runtime_context().get_node_id()
        resources: dict[str, Any] = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == node_id)
        own_node = next(name for name in resources if name.startswith("node:") and not name.startswith("node:__"))
        trainable = partial(follow, database_url=self._database_url, steps_total=spec.workload.budget.steps)
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 0, own_node: SHARE}),
            tune_config=tune.TuneConfig(
                metric=LOSS,
                mode="min",
                search_alg=StoreSearch(spec, stored_trials, partial(self._add, spec)),
                scheduler=AshaPerCandidate(spec, self._stop) if spec.may_stop_early() else None,
                num_samples=-1,  # the searcher says when it is finished
                max_concurrent_trials=spec.concurrency,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self._folder),
                verbose=0,
                # A follower that died begins again, and finds its run where that is now.
                failure_config=tune.FailureConfig(max_failures=3),
            ),
        )
        tuner.fit()

    def _read(self) -> tuple[SweepSpec, dict[int, Parameters]]:
        """Return the sweep and the trials that it has."""
        with self._database.reading() as connection:
            experiment = reads.experiment(connection, self._sweep_id)
            trial_runs = reads.run_page(connection, experiment_id=self._sweep_id)
        spec = sweep_spec(experiment)
        return spec, {run.position: spec.searched_parameters(run.position, run.spec) for run in trial_runs if run.spec}

    def _add(self, spec: SweepSpec, number: int, wanted: Parameters) -> tuple[str, Parameters] | None:
        planned = trial_run(spec, number, wanted)
        run_id = retry_while_away(lambda: trials.add(self._database, self._sweep_id, spec, number, planned))
        if run_id is None:
            return None
        with self._database.reading() as connection:
            run = reads.run(connection, run_id)
        return run.id, spec.searched_parameters(number, run.spec or planned.spec)

    def _stop(self, run_id: str) -> None:
        if retry_while_away(lambda: trials.ask_to_stop(self._database, run_id)):
            log.info("trial is stopped early", run=run_id)
