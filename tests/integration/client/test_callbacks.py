"""The three lines for each framework make the run that its own loop logs, with the framework's settings.

Each framework takes seconds to load, and is imported in the tests of it.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from torch import nn

from api.client.spool import RunSpool, find
from orchestrator.external_runs import ExternalState, RunHeader, SpoolLine

ROWS = [{"x": x, "labels": 3 * x} for x in torch.linspace(0.1, 1.0, 8)]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "ADAPM_BENCH_URL", "ADAPM_BENCH_RUNS"):
        monkeypatch.delenv(name, raising=False)
    yield
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()


class Slope(nn.Module):
    """y = slope · x."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": ((x * self.slope - labels) ** 2).mean(), "logits": x * self.slope}


def spools(folder: Path) -> list[tuple[RunHeader, list[SpoolLine]]]:
    """Return the spools in the order of their starts: two may be written to last in one tick of the file system's
    clock."""
    pairs = [(RunSpool(path).run, [line for line in RunSpool(path).lines() if line]) for path in find(folder)]
    return sorted(pairs, key=lambda pair: pair[0].started_at)


def test_the_trainer_logs_its_losses_and_a_last_evaluation_counts(tmp_path: Path) -> None:
    from transformers.trainer import Trainer
    from transformers.trainer_callback import ProgressCallback
    from transformers.training_args import TrainingArguments

    from api.client.callbacks.hugging_face import BenchCallback

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=4, eval_strategy="steps", eval_steps=2, logging_steps=1, seed=7,
        learning_rate=0.05, optim="sgd", report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
        dataloader_pin_memory=False,
    )  # fmt: skip
    runs = tmp_path / "runs"
    callback = BenchCallback(experiment="a study", candidate="sgd", folder=runs, tags=["hf"])
    trainer = Trainer(model=Slope(), args=arguments, train_dataset=ROWS, eval_dataset=ROWS, callbacks=[callback])
    trainer.remove_callback(ProgressCallback)
    trainer.train()
    ((header, lines),) = spools(runs)
    assert (header.candidate, header.lr, header.seed, header.tags) == ("sgd", 0.05, 7, ("hf",))
    assert header.config["max_steps"] == 4 and header.config["optim"] == "sgd"
    logged = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert {line.step: line.metrics["val_loss"] for line in lines if "val_loss" in line.metrics} == {
        entry["step"]: entry["eval_loss"] for entry in logged
    }
    assert [line.step for line in lines if "loss" in line.metrics] == [1, 2, 3, 4]
    assert lines[-1].state is ExternalState.FINISHED

    last = trainer.evaluate()
    (_, (later_header, further)) = spools(runs)
    assert later_header.model_copy(update={"started_at": 0.0}) == header.model_copy(update={"started_at": 0.0})
    assert [line.metrics["val_loss"] for line in further if line.metrics] == [last["eval_loss"]]
    assert further[-1].state is ExternalState.FINISHED and len({RunSpool(path).run_id for path in find(runs)}) == 1


def fit(folder: Path, *, breaks: bool = False) -> type:
    """Train the same in Lightning; the class of its logger."""
    import pytorch_lightning as lightning

    from api.client.callbacks.lightning import BenchLogger

    class Fitted(lightning.LightningModule):  # type: ignore[misc]  # Lightning's types are not followed here
        def __init__(self, learning_rate: float, broken: bool) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.model = Slope()

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> Any:
            if self.hparams["broken"] and index == 1:
                raise RuntimeError("on purpose")
            loss = self.model(**batch)["loss"]
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: dict[str, torch.Tensor], _index: int) -> None:
            self.log("val/loss", self.model(**batch)["loss"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=self.hparams["learning_rate"])

    logger = BenchLogger(experiment="a study", candidate="sgd", seed=3, config={"mine": 1}, folder=folder)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        logger=logger, max_epochs=2, accelerator="cpu", log_every_n_steps=1, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, num_sanity_val_steps=0, barebones=False,
    )  # fmt: skip
    loaders: list[Any] = [torch.utils.data.DataLoader(ROWS, batch_size=4) for _ in range(2)]  # type: ignore[arg-type]
    trainer.fit(Fitted(0.05, broken=breaks), *loaders)
    return BenchLogger


# Lightning 2.6 over torch 2.13; and its advice, which is about speed.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers")
def test_lightning_logs_its_metrics_and_says_how_it_ended(tmp_path: Path) -> None:
    logger = fit(tmp_path / "whole")
    ((header, lines),) = spools(tmp_path / "whole")
    assert (header.experiment, header.candidate, header.lr, header.seed) == ("a study", "sgd", 0.05, 3)
    assert header.config == {"mine": 1, "learning_rate": 0.05, "broken": False}
    losses = [line.metrics["val_loss"] for line in lines if "val_loss" in line.metrics]
    assert len(losses) == 2 and losses[1] < losses[0] and sum("train_loss" in line.metrics for line in lines) == 4
    assert lines[-1].state is ExternalState.FINISHED
    assert len({logger(experiment="a", candidate="b").version for _ in range(2)}) == 2, "folders of checkpoints"
    with pytest.raises(RuntimeError, match="on purpose"):
        fit(tmp_path / "broken", breaks=True)
    ((_, lines),) = spools(tmp_path / "broken")
    assert lines[-1].state is ExternalState.FAILED


def test_accelerate_tracks_what_it_is_given(tmp_path: Path) -> None:
    from accelerate import Accelerator

    from api.client.callbacks.accelerate import BenchTracker

    tracker = BenchTracker(experiment="a study", candidate="sgd", folder=tmp_path)
    accelerator = Accelerator(log_with=tracker, cpu=True)
    accelerator.init_trackers("any", config={"lr": 0.05, "seed": 4, "batch": 8})
    for step in range(3):
        accelerator.log({"eval_loss": 3.0 - step, "words": "none"}, step=step)
    assert accelerator.get_tracker("adapm-bench") is tracker.tracker or tracker.tracker.left_out == 3
    accelerator.end_training()
    ((header, lines),) = spools(tmp_path)
    assert (header.lr, header.seed, header.config["batch"]) == (0.05, 4, 8)
    assert [line.metrics for line in lines if line.metrics] == [{"val_loss": 3.0 - step} for step in range(3)]
    assert lines[-1].state is ExternalState.FINISHED


@pytest.mark.parametrize("name", ["hugging_face.BenchCallback", "lightning.BenchLogger", "accelerate.BenchTracker"])
def test_what_could_not_be_judged_is_refused_before_the_training(name: str, tmp_path: Path) -> None:
    make = resolve_name(f"api.client.callbacks.{name}")
    for wrong in ({"candidate": ""}, {"candidate": "a", "lr": -1.0}, {"candidate": "a", "seed": -1}):
        with pytest.raises(ValueError, match=r"candidate|lr|seed"):
            make(experiment="a study", folder=tmp_path, **wrong)
    assert find(tmp_path) == []


def test_a_rate_of_zero_or_a_seed_below_it_is_none(tmp_path: Path) -> None:
    from api.client.callbacks.accelerate import BenchTracker

    tracker = BenchTracker(experiment="a study", candidate="sgd", folder=tmp_path)
    tracker.store_init_configuration({"lr": 0.0, "learning_rate": 0.5, "seed": -1})
    tracker.log({"val_loss": 1.0})
    assert (tracker.tracker.header.lr, tracker.tracker.header.seed) == (0.5, None)
