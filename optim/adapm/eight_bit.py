"""State in 8 bits per element: a code for each, and a float32 scale s for every 128 neighbours of a row.

    x = s c |c|     c = code / 127, from -127 to 127      of momentum and its factors, which have a sign
    x = s c⁴        c = code / 255, from 0 to 255         of second moments: their root is coded as momentum is

s is the largest magnitude of the 128. Even steps of c lie closer where x is small: what is a thousandth of its largest
neighbour is known to a quarter of itself, not lost. The scale is exact, so that a momentum which only decays, because
its gradients are zero, keeps its codes. bitsandbytes and torchao look codes up in a table to the same end (Dettmers et
al., "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861); two roots are cheaper on a CPU. A second moment
above zero never becomes zero, which would divide by eps.

To write what was read changes nothing. A number that is not finite shows in its scale, and so in all 128.
"""

from dataclasses import dataclass
from types import EllipsisType

import torch
import torch.nn.functional as F
from torch import Tensor

from ..plan.blocks import SCALED_ELEMENTS


@dataclass(frozen=True, eq=False)
class EightBit:
    """A matrix in 8 bits, or several, or rows of one: a view of what is kept."""

    codes: Tensor
    """m × n (or B × m × n): int8, or uint8 of a second moment."""
    scales: Tensor
    """m × ceil(n / 128), float32; n counts all elements of a row, where it has dimensions of its own."""

    def __getitem__(self, chosen: slice | int | EllipsisType) -> "EightBit":
        """Return some matrices of several, or some rows of one."""
        return EightBit(self.codes[chosen], self.scales[chosen])

    def read(self, dtype: torch.dtype) -> Tensor:
        """Return the numbers, as a new tensor."""
        if self.codes.numel() == 0:
            return self.codes.to(dtype)
        if self.codes.dtype is torch.uint8:
            values = self.codes.to(dtype).div_(255.0).square_().square_()
        else:
            values = self.codes.to(dtype).div_(127.0)
            values.mul_(values.abs())
        groups = self._groups(values)
        groups.mul_(self.scales.to(dtype)[..., None])
        return self._ungroup(groups)

    def write(self, exact: Tensor) -> None:
        """Keep these numbers, rounded."""
        if self.codes.numel() == 0:
            return
        groups = self._groups(exact)
        sizes = groups.abs()
        self.scales.copy_(sizes.amax(dim=-1))
        parts = sizes.div_(torch.where(self.scales > 0.0, self.scales, 1.0)[..., None]).sqrt_()
        # What is not finite, its scale tells.
        if self.codes.dtype is torch.uint8:
            codes = parts.sqrt_().mul_(255.0).round_().clamp_(max=255.0).nan_to_num_(0.0)
            codes.masked_fill_((groups > 0.0) & (codes == 0.0), 1.0)
        else:
            codes = parts.mul_(127.0).round_().clamp_(max=127.0).copysign_(groups).nan_to_num_(0.0)
        self.codes.copy_(self._ungroup(codes))

    def round_trip(self, exact: Tensor) -> Tensor:
        """Return the values that would be read of a matrix like this one, or several, after they were written."""
        scales = self.scales.new_empty((*exact.shape[:-1], self.scales.shape[-1]))
        buffer = EightBit(torch.empty_like(exact, dtype=self.codes.dtype), scales)
        buffer.write(exact)
        return buffer.read(exact.dtype)

    def _groups(self, values: Tensor) -> Tensor:
        """Return the values of one scale next to each other: m × ceil(n / 128) × 128, or m × 1 × n; filled up with
        zeros."""
        rows = values.reshape(*self.scales.shape[:-1], -1)
        length = min(rows.shape[-1], SCALED_ELEMENTS)
        return F.pad(rows, (0, -rows.shape[-1] % length)).view(*self.scales.shape, length)

    def _ungroup(self, groups: Tensor) -> Tensor:
        """Undo `_groups`."""
        rows = groups.flatten(-2)
        length = self.codes.numel() // self.scales[..., 0].numel()
        return rows[..., :length].reshape(self.codes.shape)


Stored = Tensor | EightBit
"""A stored tensor, in the state's type or in 8 bits."""
