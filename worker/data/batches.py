"""Which tokens a step sees: a pure function of (seed, step), so that any step can be revisited.

Training draws windows uniformly with replacement; two runs with one seed see the same batches whatever their
optimizers do. Validation reads the same evenly spread windows in every run.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from worker.data.shards import TokenShards
from worker.errors import DataError


class Batches:
    """The training batches of one seed."""

    def __init__(self, shards: TokenShards, *, seed: int, sequences: int, length: int) -> None:
        """Draw `sequences` windows of `length` + 1 tokens a step; raises `DataError` where none is long enough."""
        self._shards, self._seed, self._sequences, self._length = shards, seed, sequences, length
        self._windows = _windows_or_error(shards, length, "training")
        if shards.tokens < sequences * length:
            raise DataError(
                f"the training data ({shards.tokens} tokens) is smaller than one batch, {sequences} × {length} tokens. "
                "Use a smaller budget.batch_sequences or a larger dataset."
            )

    def batch(self, step: int, rows: slice = slice(None)) -> torch.Tensor:
        """Those rows of the batch of `step` (from 0): int64, shape (sequences, length + 1); targets are inputs shifted
        by one."""
        return _stack(self._shards, self._indices(step)[rows], self._length)

    def _indices(self, step: int) -> NDArray[np.int64]:
        # Philox is counter-based and its raw stream is fixed for ever, unlike a Generator's derived draws.
        key = np.array([self._seed, step], dtype=np.uint64)
        raw = np.random.Philox(key=key).random_raw(self._sequences)
        return (raw % np.uint64(self._windows)).astype(np.int64)


def validation_sequences(shards: TokenShards, *, sequences: int, length: int) -> torch.Tensor:
    """Evenly spread held-out windows: int64, shape (sequences, length + 1). No seed enters."""
    windows = _windows_or_error(shards, length, "validation")
    indices = np.arange(sequences, dtype=np.int64) * (windows - 1) // max(1, sequences - 1)
    return _stack(shards, indices, length)


def _windows_or_error(shards: TokenShards, length: int, split: str) -> int:
    windows = shards.windows(length + 1)
    if windows == 0:
        raise DataError(
            f"the {split} data ({shards.tokens} tokens) holds no sequence of {length + 1} tokens. "
            "Use a shorter data.sequence_length_tokens or a larger dataset."
        )
    return windows


def _stack(shards: TokenShards, indices: NDArray[np.int64], length: int) -> torch.Tensor:
    windows = [shards.window(index, length + 1) for index in indices.tolist()]
    return torch.from_numpy(np.stack(windows).astype(np.int64))
