"""AdaPM in Hugging Face's Trainer: it trains, and a run that goes on from a checkpoint repeats the whole one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset

from optim.adapm import AdaPM, AdaPMMini
from worker.checks.tiny_models import batch, tiny_gpt2

STEPS = 6
LR = 3e-3


class Counting(Dataset[dict[str, torch.Tensor]]):
    """64 sequences that count from a random start."""

    def __init__(self) -> None:
        self._rows = torch.cat([batch(seed) for seed in range(16)])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def trainer(folder: Path, model: torch.nn.Module, **options: Any) -> Any:
    """A `Trainer`, whose import takes three seconds of every worker that collects the tests."""
    from transformers.trainer import Trainer
    from transformers.trainer_callback import ProgressCallback
    from transformers.training_args import TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        save_steps=STEPS // 2,
        logging_steps=1,
        learning_rate=LR,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    hf_trainer = Trainer(model=model, args=arguments, train_dataset=Counting(), **options)
    hf_trainer.remove_callback(ProgressCallback)
    return hf_trainer


def losses(hf_trainer: Any) -> list[float]:
    return [entry["loss"] for entry in hf_trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_a_run_from_a_checkpoint_repeats_the_losses_and_weights_of_the_whole(cls: type[AdaPM], tmp_path: Path):
    first, second = tiny_gpt2(), tiny_gpt2(seed=1)

    def made(model: torch.nn.Module) -> Any:
        optimizer = cls.for_model(model, lr=LR, refresh_interval=4)
        schedule = LambdaLR(optimizer, lambda step: 1.0 - step / STEPS)
        return trainer(tmp_path, model, optimizers=(optimizer, schedule))

    whole = made(first)
    whole.train()
    resumed = made(second)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS // 2}"))
    assert losses(resumed) == losses(whole)
    assert losses(whole)[-1] < losses(whole)[0]
    for weight, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(weight, other)
