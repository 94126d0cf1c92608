"""State in 8 bits, an element at a time, with Python's own numbers."""

import math
import struct

from torch import Tensor

NEIGHBOURS = 128


def rounded(matrix: Tensor, *, squares: bool = False) -> Tensor:
    """Return the stored value of the matrix: of momentum and factors, or of second moments."""
    decoded = matrix.clone()
    for row, exact in enumerate(matrix.tolist()):
        for start in range(0, len(exact), NEIGHBOURS):
            for offset, value in enumerate(rounded_group(exact[start : start + NEIGHBOURS], squares=squares)):
                decoded[row, start + offset] = value
    return decoded


def rounded_group(exact: list[float], *, squares: bool = False) -> list[float]:
    """The same of neighbours that share a scale."""
    scale = as_float32(max(abs(value) for value in exact))
    power, peak = (4, 255) if squares else (2, 127)
    return [math.copysign(scale * (code_of(value, scale, power, peak) / peak) ** power, value) for value in exact]


def code_of(value: float, scale: float, power: int, peak: int) -> int:
    """The nearest code to the root of the number's share of the scale."""
    if value == 0.0 or scale == 0.0:
        return 0
    share: float = abs(value) / scale
    code = min(peak, round(math.pow(share, 1 / power) * peak))
    return max(code, 1) if power == 4 else code


def as_float32(value: float) -> float:
    """The float32 next to it."""
    (number,) = struct.unpack("<f", struct.pack("<f", value))
    return float(number)
