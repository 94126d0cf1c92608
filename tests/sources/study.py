"""The small study of `files/`, as each tracker's own library wrote it, and the writing of it by MLflow.

`files/` is by wandb 0.31.0, trackio 0.43.0, tensorboard 2.21.0 with torch 2.13.0, pytorch-lightning 2.6.6 and
transformers 5.23.0; `older/` by wandb 0.23.0, tensorboard 2.20.0 and transformers 4.57.3, of a year before. The
programs that wrote them are `tests/sources/write.py` of commit 21899437, for when a library has changed.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "files"
OLDER = Path(__file__).parent / "older"
STEPS = range(0, 50, 10)
GRID = (("adamw", 0.002, 0.0), ("muon", 0.02, 0.1))
SEEDS = (1, 2, 3)


def loss(seed: int, gain: float, step: int) -> float:
    """A curve that falls; the last one of a muon is lower, by seeds more or less."""
    return 4.0 * math.exp(-step / 30) + 1.0 + 0.01 * math.sin(7 * seed + step) - gain * step / 40 * (1 + seed / 50)


def study() -> Iterator[tuple[str, dict[str, Any], list[tuple[int, dict[str, float]]]]]:
    """Name, configuration and points of each run."""
    for optimizer, lr, gain in GRID:
        for seed in SEEDS:
            points = [
                (step, {"val_loss": loss(seed, gain, step), "train_loss": loss(seed, gain, step) - 0.1})
                for step in STEPS
            ]
            yield f"{optimizer}-s{seed}", {"optimizer": optimizer, "lr": lr, "seed": seed, "n_layer": 2}, points


def write_mlflow_runs(client: Any) -> None:
    """Write runs by MLflow's client, into any store: files of its own contain their addresses, so a test calls this."""
    experiment = client.create_experiment("a study")
    for name, config, points in study():
        run = client.create_run(experiment, run_name=name, start_time=1_767_225_600_000, tags={"team": "fixture"})
        for key, value in config.items():
            client.log_param(run.info.run_id, key, value)
        for step, metrics in points:
            for metric, value in metrics.items():
                client.log_metric(run.info.run_id, metric, value, 1_767_225_600_000 + 1000 * step, step)
        client.log_metric(run.info.run_id, "system/cpu_utilization_percentage", 50.0, 1_767_225_600_000, 0)
        client.set_terminated(run.info.run_id, "FINISHED", end_time=1_767_225_700_000)
