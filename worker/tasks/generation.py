"""Answers by transformers' `generate`, greedy or sampled; a sampled one is a function of weights, prompt and its seed.

Sampling is an argmax too, of logits / temperature + Gumbel noise (Gumbel, 1954; Maddison et al., "A* Sampling", 2014),
with a generator for each answer. So an answer does not depend on the others in its batch, and the global random states
stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class GeneratedAnswers:
    """Prompts with their answers, in rows of one length: the prompts end, and the answers begin, at one column."""

    tokens: Tensor
    """int64, shape (answers, prompt + answer)."""
    prompt_mask: Tensor
    """int64, shape (answers, prompt): 1 where a prompt's tokens are; it is padded on its left."""
    answer_mask: Tensor
    """bool, shape (answers, answer): where an answer's tokens are, its end-of-text token included."""

    def attention_mask(self) -> Tensor:
        """Return the mask of tokens: int64, shape (answers, prompt + answer)."""
        return torch.cat((self.prompt_mask, self.answer_mask.long()), dim=1)

    def positions(self) -> Tensor:
        """Return the place of each token behind its padding: int64, shape (answers, prompt + answer)."""
        return (self.attention_mask().cumsum(dim=1) - 1).clamp_min(0)

    def lengths(self) -> Tensor:
        """Tokens of each answer, its end included: int64, shape (answers,)."""
        return self.answer_mask.sum(dim=1)


@torch.no_grad()
def generate(
    model: "PreTrainedModel",
    prompts: Tensor,
    prompt_mask: Tensor,
    *,
    most_tokens: int,
    end_of_text: int,
    temperature: float = 1.0,
    seeds: Sequence[int] | None = None,
) -> GeneratedAnswers:
    """Answer prompts that are padded on their left, int64 (answers, prompt) each, on the model's device.

    Args:
        model: Left in the mode that it is in.
        prompts: Token ids.
        prompt_mask: 1 where a prompt's tokens are.
        most_tokens: Every answer ends here, finished or not.
        end_of_text: The token that ends an answer, also as its first and only one; behind it there is padding.
        temperature: Of sampled answers.
        seeds: One for each answer; None answers greedily.
    """
    # With the models, not before (worker/models.py).
    from transformers.generation.logits_process import LogitsProcessorList

    noise = LogitsProcessorList([] if seeds is None else [GumbelNoise(seeds, temperature, prompts.device)])
    generating = getattr(model, "generate")  # noqa: B009 - transformers publishes no types for it
    tokens: Tensor = generating(
        input_ids=prompts,
        attention_mask=prompt_mask,
        max_new_tokens=most_tokens,
        do_sample=False,
        use_cache=True,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        logits_processor=noise,
    )
    answers = tokens[:, prompts.shape[1] :]
    missing = most_tokens - answers.shape[1]  # `generate` stops once every answer has ended
    answers = torch.nn.functional.pad(answers, (0, missing), value=end_of_text)
    ended_before = (answers == end_of_text).cumsum(dim=1) - (answers == end_of_text).long()
    return GeneratedAnswers(
        tokens=torch.cat((prompts, answers), dim=1), prompt_mask=prompt_mask, answer_mask=ended_before == 0
    )


class GumbelNoise:
    """Turns greedy decoding into sampling: logits → logits / temperature + noise."""

    def __init__(self, seeds: Sequence[int], temperature: float, device: torch.device) -> None:
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the shape (answers, vocabulary)."""
        rows = [torch.rand(scores.shape[1], generator=g, device=scores.device) for g in self._generators]
        uniform = torch.stack(rows).clamp(1e-10, 1.0 - 1e-7)  # log(-log(u)) is finite inside
        return scores.float() / self._temperature - torch.log(-torch.log(uniform))
