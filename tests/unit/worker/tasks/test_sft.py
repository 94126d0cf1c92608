"""Supervised fine-tuning: the loss is the answers' alone, exactly, however the batch is cut."""

import math
from pathlib import Path

import pytest
import torch

from worker.data.batches import drawn_indices
from worker.data.conversations import ensure_conversations
from worker.models import build_model
from worker.spec.run import RunSpec
from worker.tasks.next_token import FineTuning


def spec_of(length: int = 48, batch: int = 5, model: str = "gpt2-tiny") -> RunSpec:
    return RunSpec.model_validate(
        {
            "workload": {
                "task": "sft",
                "model": model,
                "data": {"sequence_length_tokens": length},
                "budget": {"steps": 10, "batch_sequences": batch},
                "evaluation": {"sequences": 6},
            },
            "optimizer": {"name": "adamw", "lr": 1e-3},
            "seed": 2,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


def task_of(spec: RunSpec, folder: Path) -> FineTuning:
    return FineTuning(build_model(spec.workload.model, 2), ensure_conversations("chats", "byte", folder), spec)


def surprise(task: FineTuning, prompt: list[int], answer: list[int]) -> float:
    """- log p(answer | prompt), token by token, without padding."""
    total = 0.0
    with torch.no_grad():
        for position, token in enumerate(answer):
            logits = task.model(torch.tensor([prompt + answer[:position]])).logits[0, -1]
            total -= float(logits.log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny"])
def test_the_loss_is_the_mean_surprise_over_the_batchs_answer_tokens(model: str, folder: Path) -> None:
    """Against a loop over single conversations: padding and prompts count for nothing."""
    task = task_of(spec_of(model=model, batch=3), folder)
    train = ensure_conversations("chats", "byte", folder).train
    pairs = [train[index] for index in drawn_indices(train, seed=2, step=4, count=3)]

    (whole,) = task.draw(4, 3)
    loss = task.training_loss(whole)

    expected = sum(surprise(task, prompt.tolist(), answer.tolist()) for prompt, answer in pairs)
    assert loss.item() == pytest.approx(expected / sum(len(answer) for _, answer in pairs), rel=1e-5)


def test_the_shares_of_uneven_micro_batches_add_up_to_the_whole(folder: Path) -> None:
    """Losses and gradients: answers have different lengths, and a mean of means would be another number."""
    task = task_of(spec_of(), folder)
    results = []
    for size in (5, 2, 1):
        task.model.zero_grad()
        loss = torch.stack([task.training_loss(piece) for piece in task.draw(0, size)]).sum()
        loss.backward()
        results.append(
            (loss.item(), torch.cat([p.grad.flatten() for p in task.model.parameters() if p.grad is not None]))
        )
    for share, gradient in results[1:]:
        assert share == pytest.approx(results[0][0], rel=1e-6)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-4, atol=1e-7)


def test_the_validation_loss_is_the_held_out_answers_and_does_not_depend_on_the_cut(folder: Path) -> None:
    task = task_of(spec_of(), folder)
    held_out = ensure_conversations("chats", "byte", folder).validation
    step = (len(held_out) - 1) / 5
    pairs = [held_out[int(number * step)] for number in range(6)]

    loss = task.validation_loss(6)

    expected = sum(surprise(task, prompt.tolist(), answer.tolist()) for prompt, answer in pairs)
    assert loss == pytest.approx(expected / sum(len(answer) for _, answer in pairs), rel=1e-5)
    assert task.validation_loss(4) == pytest.approx(loss, rel=1e-6)
    assert math.exp(loss) == pytest.approx(256, rel=0.5), "an untrained model's perplexity is about its vocabulary"
    assert task.model.training
    assert task.tokens_per_step == 5 * 48
