"""The pretraining task's losses."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.reference.made_spec import made_spec
from worker.data.batches import Batches, validation_sequences
from worker.data.preparation import ensure_dataset
from worker.models import build_model
from worker.spec import RunSpec
from worker.tasks.pretrain import Pretraining


def task_of(spec: RunSpec, dataset_folder: Path) -> Pretraining:
    dataset = ensure_dataset("python-stdlib", "byte", dataset_folder)
    return Pretraining(build_model(spec.workload.model, spec.seed), dataset, spec)


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny"])
def test_the_training_loss_is_the_mean_cross_entropy_of_the_next_tokens(model: str, dataset_folder: Path) -> None:
    """Every one of the sequence's tokens is predicted, none is lost to shifting; transformers' own loss agrees."""
    spec = made_spec(model=model)
    task = task_of(spec, dataset_folder)
    shards = ensure_dataset("python-stdlib", "byte", dataset_folder).train
    batch = Batches(shards, seed=spec.seed, sequences=4, length=32).batch(3)

    loss = task.training_loss(3)

    assert loss.requires_grad
    log_probabilities = F.log_softmax(task.model(batch).logits[:, :-1], dim=-1)
    expected = -log_probabilities.gather(-1, batch[:, 1:, None]).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss.item() == pytest.approx(task.model(batch, labels=batch).loss.item(), rel=1e-6)
    assert task.tokens_per_step == 4 * 32


def test_the_validation_loss_is_the_same_for_every_seed_of_data_and_chunking(dataset_folder: Path) -> None:
    """It is the mean over the evenly spread sequences, without gradients, and leaves training mode on."""
    spec = made_spec()
    task = task_of(spec, dataset_folder)
    shards = ensure_dataset("python-stdlib", "byte", dataset_folder).validation
    sequences = validation_sequences(shards, sequences=8, length=32)

    loss = task.validation_loss()

    expected = task.model(sequences, labels=sequences).loss.item()
    assert loss == pytest.approx(expected, rel=1e-6)
    assert task.model.training
    assert all(parameter.grad is None for parameter in task.model.parameters())
    uneven = made_spec()
    budget = uneven.workload.budget.model_copy(update={"batch_sequences": 3})
    uneven = uneven.model_copy(update={"workload": uneven.workload.model_copy(update={"budget": budget})})
    assert task_of(uneven, dataset_folder).validation_loss() == pytest.approx(loss, rel=1e-6)


def test_bf16_is_autocast_and_the_parameters_stay_in_fp32(dataset_folder: Path) -> None:
    """The loss is close to fp32's and not equal to it; gradients are fp32."""
    spec = made_spec()
    half = spec.model_copy(update={"workload": spec.workload.model_copy(update={"precision": "bf16"})})
    task = task_of(half, dataset_folder)

    loss = task.training_loss(0)
    loss.backward()

    full = task_of(spec, dataset_folder).training_loss(0).item()
    assert loss.dtype == torch.float32
    assert loss.item() != full
    assert loss.item() == pytest.approx(full, rel=1e-2)
    assert {parameter.grad.dtype for parameter in task.model.parameters() if parameter.grad is not None} == {
        torch.float32
    }
