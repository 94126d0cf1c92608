"""AdaPM under Accelerate: prepared, with accumulated gradients, saved and loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from optim.adapm import AdaPM, AdaPMMini
from worker.checks.tiny_models import batch, tiny_gpt2

LR = 3e-3


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    """Accelerate keeps its state for the whole process."""
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def rows(first: int, last: int) -> torch.Tensor:
    return torch.cat([batch(seed) for seed in range(first, last)])


def loss_on(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens).logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Prepared:
    """A tiny model with AdaPM, given to Accelerate."""

    def __init__(self, cls: type[AdaPM], *, seed: int = 0, **options: object) -> None:
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, **options)
        model = tiny_gpt2(seed)
        optimizer = cls.for_model(model, lr=LR, refresh_interval=2)
        schedule = LambdaLR(optimizer, lambda step: 0.9**step)
        self.model, self.optimizer, self.schedule = self.accelerator.prepare(model, optimizer, schedule)

    def train(self, first: int, last: int) -> None:
        """A step for every two batches of four."""
        for (tokens,) in self.accelerator.prepare(DataLoader(TensorDataset(rows(first, last)), batch_size=4)):
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(loss_on(self.model, tokens))
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_a_loaded_state_goes_on_as_the_run_that_saved_it(cls: type[AdaPM], tmp_path: Path):
    whole = Prepared(cls)
    whole.train(0, 4)
    whole.accelerator.save_state(str(tmp_path))
    whole.train(4, 8)
    resumed = Prepared(cls, seed=1)
    resumed.accelerator.load_state(str(tmp_path))
    resumed.train(4, 8)
    for weight, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_accumulated_gradients_make_the_steps_of_the_whole_batch():
    accumulated, plain = Prepared(AdaPM), tiny_gpt2()
    accumulated.train(0, 4)
    optimizer = AdaPM.for_model(plain, lr=LR, refresh_interval=2)
    schedule = LambdaLR(optimizer, lambda step: 0.9**step)
    for tokens in rows(0, 4).split(8):
        optimizer.zero_grad()
        loss_on(plain, tokens).backward()
        optimizer.step()
        schedule.step()
    for weight, other in zip(accumulated.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=0.0, atol=1e-4)


def test_it_trains_under_bfloat16_autocast():
    prepared = Prepared(AdaPMMini, mixed_precision="bf16")
    first_loss = loss_on(prepared.model, rows(30, 31)).item()
    prepared.train(0, 20)
    assert loss_on(prepared.model, rows(30, 31)).item() < first_loss
