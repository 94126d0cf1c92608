"""Stochastic rounding of bfloat16 weights: up or down by chance, so that the mean of many roundings is the exact value.

Rounded to the nearest, a weight does not move by less than 2^-9 of itself: at a learning rate of 3e-5 most updates are
lost. Rounded up with the probability of how far it has come to the next bfloat16, it follows them on average.

The chance of each element is a hash of (seed, step, block, place in the block), not a generator's next number: the same
wherever it is worked out again, in a resumed run, on another device, on the process that holds that shard.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor

_HALF_WORD = 0xFFFF
"""The bits of a float32 that bfloat16 does not have."""


class RoundingKey(NamedTuple):
    """The key that separates the random bits of one block at one step from all others."""

    factor: int
    """Odd."""
    addend: int


def rounding_key(seed: int, step: int, block: str) -> RoundingKey:
    """Return the key of that block at that step."""
    digest = sha256(f"rounding/{seed}/{step}/{block}".encode()).digest()
    factor, addend = (int.from_bytes(word, "big", signed=True) for word in (digest[:4], digest[4:8]))
    return RoundingKey(factor | 1, addend)


def round_stochastically(
    exact: Tensor, key: RoundingKey, *, origin: Sequence[int] = (), whole_shape: Sequence[int] = ()
) -> Tensor:
    """Round float32 to one of the two nearest bfloat16 numbers; the probability of the upper one is its proximity.

    Args:
        exact: Of any shape, in float32. What bfloat16 has stays as it is; infinities and NaN as well. Where the next
            one would be infinite, it is rounded to the nearest.
        key: From `rounding_key`.
        origin: Where this part of the block begins, for each dimension; empty for all of it.
        whole_shape: The shape of the whole block; empty if this is all of it.
    """
    bits = exact.view(torch.int32)
    places = _places(exact, origin or [0] * exact.ndim, whole_shape or exact.shape)
    chances = _hash(places, key) >> 16 & _HALF_WORD
    rounded = (bits + chances & ~_HALF_WORD).view(torch.float32)
    usable = rounded.isfinite() & exact.isfinite()
    return torch.where(usable, rounded, exact).to(torch.bfloat16)


def _places(like: Tensor, origin: Sequence[int], whole_shape: Sequence[int]) -> Tensor:
    """Return the number of each element in its block, row by row, modulo 2^32."""
    numbers = torch.zeros((), dtype=torch.int32, device=like.device)
    for start, size, length in zip(origin, like.shape, whole_shape, strict=True):
        along = torch.arange(start, start + size, dtype=torch.int32, device=like.device)
        numbers = numbers[..., None] * length + along
    return numbers


def _hash(places: Tensor, key: RoundingKey) -> Tensor:
    """Return 32 bits for each place: C. Wellons' `lowbias32`, in which every bit of the input moves every bit of the
    output with a bias of 0.2 %, of the place times a factor and plus an addend. int32 wraps around."""
    x = places * key.factor + key.addend
    x = x ^ (x >> 16 & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15 & 0x1FFFF)
    x = x * -0x7B935975  # 0x846CA68B
    return x ^ (x >> 16 & 0xFFFF)
