"""ReMax: its gradient against the paper's formula written out, and that it learns."""

import math
from typing import Any

import pytest
import torch

from optim.builder import build
from worker.data.conversations import ConversationDataset, ensure_conversations
from worker.models import build_model
from worker.spec.run import RunSpec
from worker.tasks.remax import VALIDATION_STEP, ReMax, RewardedMicroBatch, answer_seeds

ANSWER = 6


def spec_of(batch: int = 4, **task: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "workload": {
                "task": {"kind": "rlhf", "answer_tokens": ANSWER, "reward": "printable", **task},
                "model": "gpt2-tiny",
                "data": {"sequence_length_tokens": 20},
                "budget": {"steps": 10, "batch_sequences": batch},
                "evaluation": {"sequences": 5},
            },
            "optimizer": {"name": "adamw", "lr": 1e-3},
            "seed": 2,
        }
    )


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> ConversationDataset:
    return ensure_conversations("chats", "byte", tmp_path_factory.mktemp("datasets"))


def task_of(spec: RunSpec, chats: ConversationDataset) -> ReMax:
    return ReMax(build_model("gpt2-tiny", 2), chats, spec)


def joined(pieces: list[RewardedMicroBatch]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([piece.answers.tokens for piece in pieces]), torch.cat([piece.returns for piece in pieces])


@pytest.mark.parametrize("kl_weight", [0.0, 0.3])
def test_the_loss_is_the_papers_with_the_greedy_reward_as_baseline(
    kl_weight: float, chats: ConversationDataset
) -> None:
    """Rewards, advantages, KL penalties and log-probabilities once more, token by token, on a policy that has moved."""
    task = task_of(spec_of(kl_weight=kl_weight), chats)
    reference = build_model("gpt2-tiny", 2)
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.01)

    (batch,) = task.draw(3, 4)
    loss = task.training_loss(batch)

    total, counted, divergence = torch.zeros(()), 0, 0.0
    greedy = task._generate(batch.answers.tokens[:, :-ANSWER], batch.answers.prompt_mask, None)
    for row in range(4):
        answer = batch.answers.tokens[row, -ANSWER:][batch.answers.answer_mask[row]]
        prompt = batch.answers.tokens[row, :-ANSWER][batch.answers.prompt_mask[row].bool()]
        sequence = torch.cat((prompt, answer))[None]
        places = slice(len(prompt) - 1, -1)
        logs, initial_logs = (
            model(sequence).logits[0, places].log_softmax(-1).gather(1, answer[:, None])[:, 0]
            for model in (task.model, reference)
        )
        greedy_answer = greedy.tokens[row, -ANSWER:][greedy.answer_mask[row]]
        reward, baseline = (int(((a >= 32) & (a <= 126)).sum()) / ANSWER for a in (answer, greedy_answer))
        ratios = (logs - initial_logs).detach()
        for position in range(len(answer)):
            gain = reward - baseline - kl_weight * ratios[position:].sum()
            total = total - gain * logs[position]
        counted += len(answer)
        divergence += float(ratios.sum())
        assert float(batch.rewards[row]) == pytest.approx(reward)
    assert loss.item() == pytest.approx(float(total.detach()) / counted, rel=1e-4, abs=1e-6)
    assert task.figures["kl_nats"] == pytest.approx(divergence / 4, rel=1e-4)
    assert task.figures["answer_tokens"] == pytest.approx(counted / 4)
    assert task.figures["reward"] == pytest.approx(float(batch.rewards.mean()))


@pytest.mark.parametrize("kl_weight", [0.0, 0.3])
def test_what_is_measured_is_what_is_trained_for(kl_weight: float, chats: ConversationDataset) -> None:
    """Rewards of the held-out answers less what they lie away from the reference, answer by answer."""
    task, reference = task_of(spec_of(kl_weight=kl_weight), chats), build_model("gpt2-tiny", 2)
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.01)
    (prompts, mask), seeds = task._validation, answer_seeds(0, VALIDATION_STEP, 5)
    answers = task._generate(prompts, mask, seeds)
    gains = []
    for row in range(5):
        answer = answers.tokens[row, -ANSWER:][answers.answer_mask[row]]
        prompt = answers.tokens[row, :-ANSWER][answers.prompt_mask[row].bool()]
        logs, initial_logs = (
            torch.nn.functional.cross_entropy(
                model(torch.cat((prompt, answer))[None]).logits[0, len(prompt) - 1 : -1], answer, reduction="sum"
            )
            for model in (task.model, reference)
        )
        gains.append(
            int(((answer >= 32) & (answer <= 126)).sum()) / ANSWER - kl_weight * float((initial_logs - logs).detach())
        )
    assert task.validation_loss(2) == pytest.approx(-sum(gains) / 5, rel=1e-4, abs=1e-5)


def test_the_cut_changes_neither_answers_nor_gradients(chats: ConversationDataset) -> None:
    """The same answers, and shares that add up."""
    task = task_of(spec_of(batch=5), chats)
    outcomes = []
    for size in (5, 2):
        task.model.zero_grad()
        pieces = list(task.draw(1, size))
        loss = torch.stack([task.training_loss(piece) for piece in pieces]).sum()
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in task.model.parameters() if p.grad is not None])
        outcomes.append((*joined(pieces), loss.detach(), gradient))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    torch.testing.assert_close(outcomes[0][1:], outcomes[1][1:], rtol=1e-4, atol=1e-6)
    assert task.validation_loss(2) == pytest.approx(task.validation_loss(5), rel=1e-6)


@pytest.mark.parametrize("reward", ["model", "brevity"])
def test_every_reward_tells_answers_apart_and_repeats_itself(reward: str, chats: ConversationDataset) -> None:
    """A reward model is the same on every machine, frozen, and not the policy."""
    first, second = (task_of(spec_of(reward=reward), chats) for _ in range(2))
    (batch,), (repeated,) = first.draw(0, 4), second.draw(0, 4)
    assert torch.equal(batch.rewards, repeated.rewards)
    assert torch.isfinite(batch.rewards).all()
    if reward == "model":
        assert len(set(batch.rewards.tolist())) == 4
        other_task = task_of(spec_of(reward=reward, reward_seed=1), chats)
        assert not torch.equal(other_task.draw(0, 4)[0].rewards, batch.rewards)
    else:
        expected = 1 - (batch.answers.lengths() - 1) / (ANSWER - 1)
        assert torch.allclose(batch.rewards, expected)


@pytest.mark.parametrize("reward", ["model", "brevity", "printable"])
def test_answers_that_are_nothing_but_their_end_are_rewarded_and_trained_on(
    reward: str, chats: ConversationDataset
) -> None:
    """One token each, which counts; `brevity` gives them all that it has."""
    task = task_of(spec_of(reward=reward), chats)
    head, end_of_text = task.model.get_submodule("lm_head"), chats.manifest.end_of_text

    class Ending(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            pushed: torch.Tensor = head(hidden) + 50.0 * torch.nn.functional.one_hot(torch.tensor(end_of_text), 256)
            return pushed

    task.model.lm_head = Ending()
    (batch,) = task.draw(0, 4)
    loss = task.training_loss(batch)
    loss.backward()

    assert batch.answers.lengths().tolist() == [1] * 4
    assert batch.batch_answer_tokens == 4
    assert torch.isfinite(batch.rewards).all()
    assert math.isfinite(loss.item())
    if reward != "model":
        assert batch.rewards.tolist() == [1.0 if reward == "brevity" else 0.0] * 4


def test_the_reward_rises(chats: ConversationDataset) -> None:
    """Twenty steps of AdamW, the seeds fixed."""
    task = task_of(spec_of(batch=16, kl_weight=0.0), chats)
    optimizer = build("adamw", task.model, lr=3e-3)
    rewards = []
    for step in range(20):
        (batch,) = task.draw(step, 16)
        task.training_loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rewards.append(task.figures["reward"])
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.05
    assert task.figures["kl_nats"] > 0.1


def test_every_answer_has_a_seed_of_its_own() -> None:
    seeds = [seed for step in range(20) for seed in answer_seeds(1, step, 32)]
    assert len(set(seeds)) == len(seeds)
    assert answer_seeds(1, 3, 4) == answer_seeds(1, 3, 8)[:4]
