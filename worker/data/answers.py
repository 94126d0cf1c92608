"""Which conversations a step sees, a pure function of (seed, step), and how they become rows of equal length."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from worker.data.conversation_store import Conversations

IGNORED: Final = -100
"""The target of positions that no loss is taken on: `torch.nn.functional.cross_entropy`'s own default."""
PADDING: Final = 0
"""The token behind a conversation's end; no position of it sees it, so any would do."""


def drawn_indices(conversations: Conversations, *, seed: int, step: int, count: int) -> list[int]:
    """The conversations of a step (from 0), uniformly with replacement."""
    # Philox is counter-based and its raw stream is fixed for ever, unlike a Generator's derived draws.
    raw = np.random.Philox(key=np.array([seed, step], dtype=np.uint64)).random_raw(count)
    return [int(index) for index in raw % np.uint64(len(conversations))]


def spread_indices(conversations: Conversations, count: int) -> list[int]:
    """At most `count` evenly spread conversations: the same for every run."""
    count = min(count, len(conversations))
    return [position * (len(conversations) - 1) // max(1, count - 1) for position in range(count)]


def answer_rows(conversations: Conversations, indices: list[int], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, int64 (conversations, length) each; targets outside the answers are `IGNORED`.

    What is too long loses the beginning of its prompt, down to half of the row, then the end of its answer.
    """
    rows = np.full((len(indices), length + 1), PADDING, dtype=np.int64)
    targets = np.full((len(indices), length), IGNORED, dtype=np.int64)
    for row, index in enumerate(indices):
        prompt, answer = _fitted(*conversations[index], length + 1)
        end = len(prompt) + len(answer)
        rows[row, :end] = np.concatenate((prompt, answer))
        targets[row, len(prompt) - 1 : end - 1] = answer
    return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(targets)


def prompt_rows(conversations: Conversations, indices: list[int], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts that end at the row's end, and which positions are theirs: int64 (conversations, length) each.

    What is too long loses its beginning.
    """
    rows = np.full((len(indices), length), PADDING, dtype=np.int64)
    mask = np.zeros((len(indices), length), dtype=np.int64)
    for row, index in enumerate(indices):
        prompt = conversations[index][0][-length:]
        rows[row, length - len(prompt) :] = prompt
        mask[row, length - len(prompt) :] = 1
    return torch.from_numpy(rows), torch.from_numpy(mask)


def _fitted(
    prompt: NDArray[np.uint32], answer: NDArray[np.uint32], length: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Prompt and answer cut to `length` tokens together, at least one of each."""
    kept = min(len(prompt), max(length - len(answer), length // 2, 1))
    return prompt[-kept:], answer[: length - kept]
