"""Products in TF32 or bfloat16 as an accelerator works them out: operands of a shorter mantissa, sums in float32.

`emulate_products(bits)` has a CPU do so wherever AdaPM asks for `matmul_precision="high"`, and for the product A B.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from optim.adapm import devices, low_rank

TF32_BITS = 10
BFLOAT16_BITS = 7


def cut_mantissa(exact: Tensor, bits: int) -> Tensor:
    """float32 with so many bits of its mantissa and the rest cut off, as tensor cores do; worse than rounding."""
    assert exact.dtype is torch.float32
    return (exact.view(torch.int32) & ~((1 << 23 - bits) - 1)).view(torch.float32)


@contextmanager
def emulate_products(bits: int) -> Iterator[None]:
    """Within, AdaPM's products with a gradient, where it asks for "high", and A B take operands of so many bits."""

    def narrow(product: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
        def multiply(rows: Tensor, matrix: Tensor, *, precision: str = "highest") -> Tensor:
            if precision == "high":
                rows, matrix = (cut_mantissa(each.contiguous(), bits) for each in (rows, matrix))
            return product(rows, matrix)

        return multiply

    def add_product(base: Tensor, one: Tensor, other: Tensor, *, beta: float, alpha: float) -> Tensor:
        one, other = (cut_mantissa(each.contiguous(), bits) for each in (one, other))
        return low_rank.add_product(base, one, other, beta=beta, alpha=alpha)

    def times(rows: Tensor, matrix: Tensor) -> Tensor:
        return devices.times(*(cut_mantissa(each.contiguous(), bits) for each in (rows, matrix)))

    with ExitStack() as stack:
        stack.enter_context(patch.object(low_rank, "times", narrow(devices.times)))
        stack.enter_context(patch.object(low_rank, "times_transposed", narrow(devices.times_transposed)))
        stack.enter_context(patch("optim.adapm.step.times", times))
        stack.enter_context(patch("optim.adapm.step.add_product", add_product))
        yield
