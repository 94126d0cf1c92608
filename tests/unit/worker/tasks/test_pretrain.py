"""The pretraining task's losses."""

from pathlib import Path

import pytest
import torch.nn.functional as F

from tests.factories.specification import made_spec
from worker.data.batches import Batches, validation_sequences
from worker.data.preparation import ensure_dataset
from worker.models import build_model
from worker.spec.run import RunSpec
from worker.tasks.next_token import Pretraining


def task_of(spec: RunSpec, dataset_folder: Path) -> Pretraining:
    dataset = ensure_dataset("python-stdlib", "byte", dataset_folder)
    return Pretraining(build_model(spec.workload.model, spec.seed), dataset, spec)


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny", "mixtral-tiny"])
def test_the_training_loss_is_the_mean_cross_entropy_of_the_next_tokens(model: str, dataset_folder: Path) -> None:
    """Every one of the sequence's tokens is predicted, none is lost to shifting; transformers' own loss agrees."""
    spec = made_spec(model=model)
    task = task_of(spec, dataset_folder)
    shards = ensure_dataset("python-stdlib", "byte", dataset_folder).train
    batch = Batches(shards, seed=spec.seed, sequences=4, length=32).batch(3)

    (whole,) = task.draw(3, 4)
    loss = task.training_loss(whole)

    assert loss.requires_grad
    log_probabilities = F.log_softmax(task.model(batch).logits[:, :-1], dim=-1)
    expected = -log_probabilities.gather(-1, batch[:, 1:, None]).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss.item() == pytest.approx(task.model(batch, labels=batch).loss.item(), rel=1e-6)
    assert (task.tokens_per_step, task.batch_sequences) == (4 * 32, 4)


def test_the_validation_loss_is_the_same_for_every_micro_batch(dataset_folder: Path) -> None:
    """It is the mean over the evenly spread sequences, without gradients, and leaves training mode on."""
    task = task_of(made_spec(), dataset_folder)
    shards = ensure_dataset("python-stdlib", "byte", dataset_folder).validation
    sequences = validation_sequences(shards, sequences=8, length=32)

    loss = task.validation_loss(4)

    expected = task.model(sequences, labels=sequences).loss.item()
    assert loss == pytest.approx(expected, rel=1e-6)
    assert task.model.training
    assert all(parameter.grad is None for parameter in task.model.parameters())
    assert task.validation_loss(3) == pytest.approx(loss, rel=1e-6)
