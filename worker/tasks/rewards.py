"""What an answer is worth, for the task `rlhf`: one number an answer, float32, shape (answers,).

`model` is a reward model as RLHF has it: a language model with a scalar head, read at the answer's last token. Offline
its weights are drawn from a seed, so that it prefers something, and the same thing on every machine. The rules are for
looking on: whoever reads the answers sees what was learnt.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from worker.models.pretrained import PreTrainedModel
from worker.spec.task import RlhfTask
from worker.tasks.generation import GeneratedAnswers

Reward = Callable[[GeneratedAnswers], Tensor]
FIRST_PRINTABLE, LAST_PRINTABLE = ord(" "), ord("~")


def reward_of(task: RlhfTask, policy: PreTrainedModel, end_of_text: int) -> Reward:
    """The reward that the task names; a reward model is made on the policy's device."""
    return REWARDS[task.reward](task, policy, end_of_text)


class RewardModel:
    """A language model of the policy's architecture with a scalar head (`AutoModelForSequenceClassification`)."""

    def __init__(self, task: RlhfTask, policy: PreTrainedModel, end_of_text: int) -> None:
        # It brings the names of every model that there is, for this reward alone.
        from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

        config: Any = type(policy.config).from_dict(policy.config.to_dict())
        config.num_labels, config.pad_token_id = 1, end_of_text  # it reads its score at the last other token
        making: Any = AutoModelForSequenceClassification.from_config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(task.reward_seed)
            model: nn.Module = making(config)
        self.model = model.to(policy.device).eval().requires_grad_(requires_grad=False)

    @torch.no_grad()
    def __call__(self, answers: GeneratedAnswers) -> Tensor:
        """The head's score of each answer, given its prompt."""
        found = self.model(
            input_ids=answers.tokens, attention_mask=answers.attention_mask(), position_ids=answers.positions()
        )
        scores: Tensor = found.logits.float().squeeze(1)
        return scores


def _printable(task: RlhfTask, policy: PreTrainedModel, end_of_text: int) -> Reward:
    def reward(answers: GeneratedAnswers) -> Tensor:
        """Bytes that are printable ASCII, over the longest answer's bytes."""
        tokens = answers.tokens[:, -answers.answer_mask.shape[1] :]
        printable = (tokens >= FIRST_PRINTABLE) & (tokens <= LAST_PRINTABLE) & answers.answer_mask
        return printable.sum(dim=1) / task.answer_tokens

    return reward


def _brevity(task: RlhfTask, policy: PreTrainedModel, end_of_text: int) -> Reward:
    def reward(answers: GeneratedAnswers) -> Tensor:
        """1 for an answer that ends at once, 0 for the longest."""
        return 1.0 - (answers.lengths() - 1) / max(1, task.answer_tokens - 1)

    return reward


REWARDS: Final[dict[str, Callable[[RlhfTask, PreTrainedModel, int], Reward]]] = {
    "model": RewardModel,
    "printable": _printable,
    "brevity": _brevity,
}
