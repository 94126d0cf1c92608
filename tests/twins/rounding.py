"""Stochastic rounding to bfloat16, an element at a time, with Python's own integers."""

import math
import struct

WORD = 2**32


def round_stochastically(exact: float, factor: int, addend: int, index: int) -> float:
    """`exact`, a float32, rounded to one of its neighbours in bfloat16."""
    if not math.isfinite(exact):
        return exact
    (bits,) = struct.unpack("<I", struct.pack("<f", exact))
    chance = scramble((index * factor + addend) % WORD) >> 16
    magnitude, remainder = bits & ~0xFFFF, bits & 0xFFFF
    if chance + remainder >= 0x10000:  # with the probability remainder / 2^16
        magnitude += 0x10000
    (number,) = struct.unpack("<f", struct.pack("<I", magnitude))
    return float(number) if math.isfinite(number) else nearest(bits)


def nearest(bits: int) -> float:
    """Round to the nearest of the largest numbers: halves to even, as IEEE 754 has it."""
    rounded = bits + 0x7FFF + (bits >> 16 & 1) & ~0xFFFF
    (number,) = struct.unpack("<f", struct.pack("<I", rounded % WORD))
    return float(number)


def scramble(word: int) -> int:
    """`lowbias32` (C. Wellons)."""
    word ^= word >> 16
    word = word * 0x7FEB352D % WORD
    word ^= word >> 15
    word = word * 0x846CA68B % WORD
    return word ^ word >> 16
