"""Row chunks: elementwise work on a block piece by piece, so that its temporaries stay small and in the cache.

A block of GPT-2's embedding is 154 MB. Its update needs two temporaries of its size; on a CPU, writing those to memory
(and having it mapped) takes longer than the arithmetic. By rows, they never leave the cache. Blocks that are smaller
than a chunk are worked on several at a time (`batches.py`), up to one chunk together.
"""

from collections.abc import Callable, Iterator
from types import EllipsisType

import torch
from torch import Tensor

from optim import accelerators

Rows = slice | EllipsisType
"""Rows of a block; `...` for all of it, also where it has no rows (a scalar)."""

OnRows = Callable[[Rows, list[Tensor]], list[Tensor]]
"""From some rows, and the gradients of a batch of blocks there, to one tensor a block for those rows."""

# Best of 2^15 … 2^20 on GPT-2 124M shapes, one core; flat from 2^17 to 2^19.
_CPU_CHUNK_ELEMENTS = 2**18
# 64 MiB of float32: a launch costs nothing beside it, and three of them bound what a large block needs for a while.
_ACCELERATOR_CHUNK_ELEMENTS = 2**24


def chunk_elements(device: torch.device) -> int:
    """How many elements of blocks are worked on at a time there."""
    return _ACCELERATOR_CHUNK_ELEMENTS if accelerators.is_accelerator(device) else _CPU_CHUNK_ELEMENTS


def row_chunks(tensor: Tensor, limit: int | None = None) -> Iterator[Rows]:
    """Cover the tensor by rows, in pieces of at most `limit` elements: a chunk, unless less is asked for."""
    limit = chunk_elements(tensor.device) if limit is None else limit
    if tensor.ndim == 0 or tensor.numel() <= limit:
        yield ...
        return
    rows = tensor.shape[0]
    step = max(1, limit * rows // tensor.numel())
    for start in range(0, rows, step):
        yield slice(start, start + step)


class Scratch:
    """Memory for one piece at a time, taken once a step.

    Asking the allocator anew for each piece costs as much as the arithmetic: it gives a mebibyte back to the system
    and has every page of it mapped again.
    """

    def __init__(self) -> None:
        self._flat: Tensor | None = None

    def like(self, piece: Tensor) -> Tensor:
        """A contiguous tensor of that shape, type and device, with no particular content; valid until the next call."""
        flat, needed = self._flat, piece.numel()
        if flat is None or flat.numel() < needed or flat.dtype != piece.dtype or flat.device != piece.device:
            flat = self._flat = torch.empty(needed, dtype=piece.dtype, device=piece.device)
        return flat[:needed].view(piece.shape)
