"""The task `rlhf`: ReMax (Li et al., "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for
Aligning Large Language Models", arXiv 2310.10505, algorithm 1).

For a prompt x, with a sampled from the policy pi and a' its greedy answer:

    advantage   A = r(x, a) - r(x, a')                              the greedy answer's reward is the baseline
    return      R_t = A - kl_weight sum_{s >= t} log pi(a_s) / pi_ref(a_s)      as in the authors' code, undiscounted
    loss        - sum_t R_t log pi(a_t), over the answers' tokens of the whole batch by their number

pi_ref is the policy before training. Everything but the last line's gradient happens in `draw`, on the weights before
the step. The validation loss is what is trained for, the mean of r(x, a) - kl_weight log pi(a) / pi_ref(a) of sampled
answers to held-out prompts, negated, because lower is better everywhere; their seeds are the same for every run and
evaluation.

What an answer is worth is one number an answer, float32, shape (answers,). `model` is a reward model as RLHF has it: a
language model with a scalar head, read at the answer's last token. Offline its weights are drawn from a seed, so that
it prefers something, and the same thing on every machine. The rules are for looking on: whoever reads the answers sees
what was learnt.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from worker.data.batches import drawn_indices, prompt_rows, spread_indices
from worker.data.conversations import ConversationDataset
from worker.spec.run import RunSpec
from worker.spec.task import RlhfTask
from worker.tasks.generation import GeneratedAnswers, generate

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel

VALIDATION_STEP: Final = 2**62
"""The step in the seeds of validation answers: no training gets there."""


@dataclass(frozen=True, kw_only=True)
class RewardedMicroBatch:
    """Some answers of a batch with their returns, on the CPU."""

    answers: GeneratedAnswers
    returns: Tensor
    """R_t, float32, shape (answers, answer); 0 outside the answers."""
    log_ratios: Tensor
    """log pi / pi_ref, alike."""
    rewards: Tensor
    """r(x, a), shape (answers,)."""
    batch_answer_tokens: int
    """Answer tokens of the whole batch: what the loss is the mean over."""


class ReMax:
    """Draws prompts by (seed, step), answers and rewards them, and evaluates on held-out prompts."""

    def __init__(self, model: "PreTrainedModel", dataset: ConversationDataset, spec: RunSpec) -> None:
        """`model` is on its device already, with its weights from before training."""
        workload, task = spec.workload, spec.workload.task
        assert isinstance(task, RlhfTask)
        self.model: nn.Module = model
        self._policy, self._task, self._seed = model, task, spec.seed
        self.data_hash = dataset.data_hash
        self.batch_sequences = workload.budget.batch_sequences
        self.tokens_per_step = self.batch_sequences * workload.data.sequence_length_tokens
        self.figures: Mapping[str, float] = {}
        """Of the newest `draw`, reported with its step: names of `Point`'s fields, finite values."""
        """Of the newest `draw`: reward, kl_nats, answer_tokens (fields of `Point`)."""
        self._prompt_tokens = workload.data.sequence_length_tokens - task.answer_tokens
        self._end_of_text, self._conversations = dataset.manifest.end_of_text, dataset.train
        self._reference = copy.deepcopy(model)
        nn.Module.eval(self._reference).requires_grad_(requires_grad=False)
        self._reward = RULES.get(task.reward) or RewardModel(task, model, self._end_of_text)
        held_out = spread_indices(dataset.validation, workload.evaluation.sequences)
        self._validation = prompt_rows([dataset.validation[index][0] for index in held_out], self._prompt_tokens)

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[RewardedMicroBatch]:
        """Return the prompts of `step` with sampled answers and their returns; the answers do not depend on the cut."""
        indices = drawn_indices(self._conversations, seed=self._seed, step=step, count=self.batch_sequences)
        prompts, mask = prompt_rows([self._conversations[index][0] for index in indices], self._prompt_tokens)
        seeds = answer_seeds(self._seed, step, self.batch_sequences)
        nn.Module.eval(self._policy)
        pieces = [
            self._answer(prompts[start:end], mask[start:end], seeds[start:end])
            for start, end in _cuts(self.batch_sequences, micro_batch_sequences)
        ]
        self._policy.train()
        counted = sum(int(answers.answer_mask.sum()) for answers, *_ in pieces)
        batch = [self._reward_answers(*piece, counted) for piece in pieces]
        self.figures = _figures(batch)
        return batch

    def training_loss(self, micro_batch: RewardedMicroBatch) -> Tensor:
        """Return the policy gradient's surrogate, summed over the micro-batch's tokens, by the whole batch's tokens."""
        log_probabilities = self._log_probabilities(self._policy, _move(micro_batch.answers, self._policy.device))
        gains: Tensor = log_probabilities * micro_batch.returns.to(log_probabilities.device)
        return -gains.sum() / micro_batch.batch_answer_tokens

    @torch.no_grad()
    def validation_loss(self, micro_batch_sequences: int) -> float:
        """Minus the mean of what is trained for, reward less `kl_weight` times log(policy / reference), of sampled
        answers to the held-out prompts: by the reward alone those rates would be best at which a policy gives up
        everything else for it. The noise is the same every time."""
        nn.Module.eval(self._policy)
        (prompts, mask), seeds = self._validation, answer_seeds(0, VALIDATION_STEP, len(self._validation[0]))
        total = 0.0
        for start, end in _cuts(len(prompts), micro_batch_sequences):
            answers = self._generate(prompts[start:end], mask[start:end], seeds[start:end])
            total += float(self._reward(answers).sum())
            if self._task.kl_weight:
                total -= self._task.kl_weight * float(self._log_ratios(answers).sum())
        self._policy.train()
        return -total / len(prompts)

    def _answer(self, prompts: Tensor, mask: Tensor, seeds: Sequence[int]) -> tuple[GeneratedAnswers, Tensor, Tensor]:
        """Return (sampled answers, their rewards, their advantages over the greedy ones), on the CPU."""
        sampled, greedy = self._generate(prompts, mask, seeds), self._generate(prompts, mask, None)
        rewards = self._reward(sampled)
        return _move(sampled, torch.device("cpu")), rewards.cpu(), (rewards - self._reward(greedy)).cpu()

    def _generate(self, prompts: Tensor, mask: Tensor, seeds: Sequence[int] | None) -> GeneratedAnswers:
        return generate(
            self._policy,
            prompts.to(self._policy.device),
            mask.to(self._policy.device),
            most_tokens=self._task.answer_tokens,
            end_of_text=self._end_of_text,
            temperature=self._task.temperature,
            seeds=seeds,
        )

    @torch.no_grad()
    def _reward_answers(
        self, answers: GeneratedAnswers, rewards: Tensor, advantages: Tensor, counted: int
    ) -> RewardedMicroBatch:
        log_ratios = self._log_ratios(_move(answers, self._policy.device)).cpu()
        penalties = self._task.kl_weight * log_ratios.flip(1).cumsum(dim=1).flip(1)  # from each token to the end
        returns = (advantages[:, None] - penalties) * answers.answer_mask
        return RewardedMicroBatch(
            answers=answers, returns=returns, log_ratios=log_ratios, rewards=rewards, batch_answer_tokens=counted
        )

    def _log_ratios(self, answers: GeneratedAnswers) -> Tensor:
        """Return log(policy / reference) of each answer token, on the answers' device: float32, (answers, answer)."""
        ratios = self._log_probabilities(self._policy, answers) - self._log_probabilities(self._reference, answers)
        return ratios * answers.answer_mask

    def _log_probabilities(self, model: "PreTrainedModel", answers: GeneratedAnswers) -> Tensor:
        """Return log pi of each answer token at the task's temperature: float32, shape (answers, answer)."""
        output = model(
            input_ids=answers.tokens[:, :-1],
            attention_mask=answers.attention_mask()[:, :-1],
            position_ids=answers.positions()[:, :-1],
        )
        length = answers.answer_mask.shape[1]
        logits = output.logits[:, -length:].float() / self._task.temperature
        chosen = answers.tokens[:, -length:, None]
        return torch.log_softmax(logits, dim=-1).gather(-1, chosen).squeeze(-1)


def answer_seeds(seed: int, step: int, count: int) -> list[int]:
    """Return a seed for each answer of a step, a function of (seed, step, index of the answer)."""
    # The key's second word tells this stream from the one that draws the prompts of the same step.
    raw = np.random.Philox(key=np.array([seed, step + 2**63], dtype=np.uint64)).random_raw(count)
    return [int(number >> np.uint64(1)) for number in raw]


def _cuts(count: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(count, start + size)) for start in range(0, count, size)]


def _move(answers: GeneratedAnswers, device: torch.device) -> GeneratedAnswers:
    return GeneratedAnswers(
        tokens=answers.tokens.to(device),
        prompt_mask=answers.prompt_mask.to(device),
        answer_mask=answers.answer_mask.to(device),
    )


def _figures(batch: Sequence[RewardedMicroBatch]) -> dict[str, float]:
    """Return means over the answers of a batch."""
    return {
        "reward": torch.cat([piece.rewards for piece in batch]).mean().item(),
        "kl_nats": torch.cat([piece.log_ratios.sum(dim=1) for piece in batch]).mean().item(),
        "answer_tokens": torch.cat([piece.answers.lengths() for piece in batch]).float().mean().item(),
    }


Reward = Callable[[GeneratedAnswers], Tensor]
FIRST_PRINTABLE, LAST_PRINTABLE = ord(" "), ord("~")


class RewardModel:
    """A language model of the policy's architecture with a scalar head (`AutoModelForSequenceClassification`)."""

    def __init__(self, task: RlhfTask, policy: "PreTrainedModel", end_of_text: int) -> None:
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
        """Return the head's score of each answer, given its prompt."""
        output = self.model(
            input_ids=answers.tokens, attention_mask=answers.attention_mask(), position_ids=answers.positions()
        )
        scores: Tensor = output.logits.float().squeeze(1)
        return scores


def _printable(answers: GeneratedAnswers) -> Tensor:
    """Return each answer's printable ASCII bytes, divided by the longest answer's bytes."""
    length = answers.answer_mask.shape[1]
    tokens = answers.tokens[:, -length:]
    return ((tokens >= FIRST_PRINTABLE) & (tokens <= LAST_PRINTABLE) & answers.answer_mask).sum(dim=1) / length


def _brevity(answers: GeneratedAnswers) -> Tensor:
    """Return 1 for an answer that ends at once, 0 for the longest."""
    return 1.0 - (answers.lengths() - 1) / max(1, answers.answer_mask.shape[1] - 1)


RULES: Final[dict[str, Reward]] = {"printable": _printable, "brevity": _brevity}
"""The rules that need no reward model."""
