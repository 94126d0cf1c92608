"""Write `files/`: the same small study as each tracker's own library writes it. By hand, where a library has changed.

    pip install wandb==0.31.0 trackio==0.43.0 tensorboard==2.21.0     # beside the `dev` extra
    python -m tests.sources.write

Written by wandb 0.31.0, trackio 0.43.0, tensorboard 2.21.0 with torch 2.13.0, pytorch-lightning 2.6.6 and transformers
5.23.0. The tests need none of them, but MLflow.

`older/` is by the versions of a year before, wandb 0.23.0, tensorboard 2.20.0 and transformers 4.57.3:

    python -m tests.sources.write --older wandb wandb_resumed tensorboard trainer_state
"""

import math
import os
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
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


def write_csv(folder: Path) -> None:
    """Write runs by Lightning's own logger, a folder for each run."""
    from pytorch_lightning.loggers import CSVLogger

    for name, config, points in study():
        logger = CSVLogger(folder, name="", version=name)
        logger.log_hyperparams(config)
        for step, metrics in points:
            logger.log_metrics({"train_loss": metrics["train_loss"]}, step)
            logger.log_metrics({"val_loss": metrics["val_loss"]}, step + 1)
        logger.finalize("success")


def write_trainer_states(folder: Path) -> None:
    """Write two trainings of Hugging Face's Trainer with two checkpoints each, of which the JSON is kept."""
    import torch
    from transformers.trainer import Trainer
    from transformers.training_args import TrainingArguments

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            prediction = x * self.slope
            return {"loss": ((prediction - labels) ** 2).mean(), "logits": prediction}

    torch.manual_seed(0)
    rows = [{"x": x, "labels": 3 * x} for x in torch.linspace(0.1, 1.0, 16)]
    for optimizer, lr in (("sgd", 0.05), ("adamw_torch", 0.1)):
        for seed in (1, 2):
            with tempfile.TemporaryDirectory() as output:
                arguments = TrainingArguments(
                    output_dir=output, optim=optimizer, learning_rate=lr, seed=seed, max_steps=8, eval_strategy="steps",
                    eval_steps=4, save_steps=4, logging_steps=2, per_device_train_batch_size=4, report_to=[],
                    use_cpu=True, disable_tqdm=True,
                )  # fmt: skip
                Trainer(model=Line(), args=arguments, train_dataset=rows, eval_dataset=rows[:4]).train()
                for state_file in sorted(Path(output).glob("checkpoint-*/trainer_state.json")):
                    target = folder / f"{optimizer}-lr{lr}-s{seed}" / state_file.parent.name / state_file.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(state_file, target)


def write_tensorboard(folder: Path) -> None:
    """Write runs by torch's writer: hyperparameters by its plugin, a text, and a histogram, which is no number."""
    import numpy as np
    from torch.utils.tensorboard import SummaryWriter

    for name, config, points in study():
        with SummaryWriter(str(folder / name)) as writer:
            writer.add_hparams(config, {"hparam/last": 0.0}, run_name="." if config["optimizer"] == "muon" else None)
            writer.add_text("note", f"the run {name}")
            writer.add_histogram("weights", np.arange(4.0), 0)
            for step, metrics in points:
                for metric, value in metrics.items():
                    writer.add_scalar(metric, value, step, new_style=metric == "val_loss")


def write_wandb(folder: Path) -> None:
    """Write runs by W&B offline: one of them failed, one was killed before it could report its end."""
    written = Path(tempfile.mkdtemp())
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(written), "WANDB_SILENT": "true"}
    sys.executable = "/usr/bin/python3"  # it is written down, and is nobody's business here
    import wandb

    for name, config, points in study():
        settings = wandb.Settings(x_stats_sampling_interval=0.1, disable_git=True, save_code=False, host="a-host")
        run = wandb.init(project="a study", name=name, config=config, tags=["fixture"], id=name, settings=settings)
        for step, metrics in points:
            run.log({**metrics, "nested": {"norm": 1.0}, "words": "no number"}, step=step)
        run.summary["best"] = min(metrics["val_loss"] for _, metrics in points)
        run.finish(exit_code=1 if name == "muon-s3" else 0)
    for log_file in written.rglob("offline-run-*/*.wandb"):
        target = folder / log_file.parent.name / log_file.name
        target.parent.mkdir(parents=True)
        shutil.copy(log_file, target)


def write_wandb_resumed(folder: Path) -> None:
    """Write runs by W&B offline, each in two processes: one that went back to a checkpoint, one whose steps W&B counts,
    over an axis of its own."""
    written = Path(tempfile.mkdtemp())
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(written), "WANDB_SILENT": "true"}
    sys.executable = "/usr/bin/python3"
    import wandb

    settings = wandb.Settings(x_disable_stats=True, disable_git=True, save_code=False, host="a-host")
    for name, sessions in (("rewound", ((0, 40), (20, 30))), ("counted", ((0, 30), (30, 50)))):
        for number, (begin, end) in enumerate(sessions):
            config = {"optimizer": name, "lr": 0.1, "seed": 1}
            run = wandb.init(project="resumed", name=name, config=config, id=name, resume="allow", settings=settings)
            if name == "counted":
                run.define_metric("val_loss", step_metric="tokens")
            for step in range(begin, end, 10):
                metrics = {"val_loss": 100.0 * number + step}
                run.log(
                    {**metrics, "tokens": 2 * step} if name == "counted" else metrics,
                    step=None if name == "counted" else step,
                )
            run.finish()
    for log_file in written.rglob("offline-run-*/*.wandb"):
        target = folder / log_file.parent.name / log_file.name
        target.parent.mkdir(parents=True)
        shutil.copy(log_file, target)


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


def write_trackio(folder: Path) -> None:
    """Write runs by Trackio, into the database of one project."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRACKIO_DIR"] = home
        import trackio

        for name, config, points in study():
            trackio.init(project="a study", name=name, config=config, embed=False)
            for step, metrics in points:
                trackio.log(metrics, step=step)
            trackio.log_system({"gpu": 0.5})
            trackio.finish()
        (file,) = Path(home).glob("*.db")
        folder.mkdir(parents=True)
        with closing(sqlite3.connect(file, isolation_level=None)) as database:  # one small file, no log beside it
            for statement in ("pragma journal_mode = delete", "pragma page_size = 512", "vacuum"):
                database.execute(statement)
        shutil.copy(file, folder / "a study.db")


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "csv": write_csv,
    "trainer_state": write_trainer_states,
    "tensorboard": write_tensorboard,
    "wandb": write_wandb,
    "trackio": write_trackio,
    "wandb_resumed": write_wandb_resumed,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder = OLDER if "--older" in sys.argv else FILES
    for name in [word for word in sys.argv[1:] if word != "--older"] or WRITERS:
        shutil.rmtree(folder / name, ignore_errors=True)
        WRITERS[name](folder / name)
        size = sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file())
        print(f"{name}: {size:,} bytes")
