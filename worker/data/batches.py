"""The tokens or conversations of a step: a pure function of (seed, step), so that any step can be revisited.

Training draws windows uniformly with replacement; two runs with one seed see the same batches whatever their
optimizers do. Validation reads the same evenly spread windows in every run.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from worker.data.conversations import Conversations
from worker.data.shards import TokenShards
from worker.data.tokenizers import Tokens
from worker.errors import DataError


class Batches:
    """The training batches of one seed."""

    def __init__(self, shards: TokenShards, *, seed: int, sequences: int, length: int) -> None:
        """Draw `sequences` windows of `length` + 1 tokens per step; raises `DataError` if none is long enough."""
        self._shards, self._seed, self._sequences, self._length = shards, seed, sequences, length
        self._windows = _windows_or_error(shards, length, "training")
        if shards.tokens < sequences * length:
            raise DataError(
                f"the training data ({shards.tokens} tokens) is smaller than one batch, {sequences} × {length} tokens. "
                "Use a smaller budget.batch_sequences or a larger dataset."
            )

    def batch(self, step: int, rows: slice = slice(None)) -> torch.Tensor:
        """Return rows of the batch of `step` (from 0): int64, shape (sequences, length + 1); targets are inputs shifted
        by one."""
        indices = _draw(self._seed, step, self._sequences, below=self._windows)
        return _stack(self._shards, indices[rows], self._length)


def _draw(seed: int, step: int, count: int, *, below: int) -> list[int]:
    """Return uniform numbers below `below`, drawn with replacement."""
    # Philox is counter-based and its raw stream is fixed for ever, unlike a Generator's derived draws.
    raw = np.random.Philox(key=np.array([seed, step], dtype=np.uint64)).random_raw(count)
    return [int(number) for number in raw % np.uint64(below)]


def validation_sequences(shards: TokenShards, *, sequences: int, length: int) -> torch.Tensor:
    """Return evenly spread held-out windows: int64, shape (sequences, length + 1), independent of seeds."""
    windows = _windows_or_error(shards, length, "validation")
    indices = [position * (windows - 1) // max(1, sequences - 1) for position in range(sequences)]
    return _stack(shards, indices, length)


def _windows_or_error(shards: TokenShards, length: int, split: str) -> int:
    windows = shards.windows(length + 1)
    if windows == 0:
        raise DataError(
            f"the {split} data ({shards.tokens} tokens) holds no sequence of {length + 1} tokens. "
            "Use a shorter data.sequence_length_tokens or a larger dataset."
        )
    return windows


def _stack(shards: TokenShards, indices: list[int], length: int) -> torch.Tensor:
    windows = [shards.window(index, length + 1) for index in indices]
    return torch.from_numpy(np.stack(windows).astype(np.int64))


IGNORED: Final = -100
"""The target of positions that no loss is taken on: `torch.nn.functional.cross_entropy`'s own default."""
PADDING: Final = 0
"""The token behind a conversation's end; no position of it sees it, so any would do."""


def drawn_indices(conversations: Conversations, *, seed: int, step: int, count: int) -> list[int]:
    """Return the conversations of a step (from 0), uniformly with replacement."""
    return _draw(seed, step, count, below=len(conversations))


def spread_indices(conversations: Conversations, count: int) -> list[int]:
    """Return at most `count` evenly spread conversations: the same for every run."""
    count = min(count, len(conversations))
    return [position * (len(conversations) - 1) // max(1, count - 1) for position in range(count)]


def answer_rows(conversations: Conversations, indices: list[int], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets, int64 (conversations, length) each; targets outside the answers are `IGNORED`.

    What is too long loses the beginning of its prompt, down to half of the row, then the end of its answer.
    """
    rows = np.full((len(indices), length + 1), PADDING, dtype=np.int64)
    targets = np.full((len(indices), length), IGNORED, dtype=np.int64)
    for row, index in enumerate(indices):
        prompt, answer = conversations[index]
        prompt_tokens = min(len(prompt), max(length + 1 - len(answer), (length + 1) // 2, 1))
        prompt, answer = prompt[-prompt_tokens:], answer[: length + 1 - prompt_tokens]
        end = len(prompt) + len(answer)
        rows[row, :end] = np.concatenate((prompt, answer))
        targets[row, len(prompt) - 1 : end - 1] = answer
    return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(targets)


def prompt_rows(prompts: Sequence[Tokens], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return prompts aligned to the row's end, and the mask of their positions: int64 (prompts, length) each.

    What is too long loses its beginning.
    """
    rows = np.full((len(prompts), length), PADDING, dtype=np.int64)
    mask = np.zeros((len(prompts), length), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        start = max(length - len(prompt), 0)
        rows[row, start:] = prompt[-length:]
        mask[row, start:] = 1
    return torch.from_numpy(rows), torch.from_numpy(mask)
