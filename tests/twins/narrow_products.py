"""Products in TF32 or bfloat16 as an accelerator works them out: operands of a shorter mantissa, sums in float32.

`emulate_products(bits)` has a CPU do so wherever AdaPM asks for `matmul_precision="high"`, and for the product A B.
With `in_parts`, each operand is first divided into a large and a small part of so many bits, as our kernel does at
"highest".
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


Product = Callable[[Tensor, Tensor], Tensor]


def narrowed(product: Product, bits: int, *, in_parts: bool = False) -> Product:
    """A product of operands of so many bits, or of two parts of so many: without that of both small ones."""

    def multiply(first: Tensor, other: Tensor) -> Tensor:
        first, other = first.contiguous(), other.contiguous()
        large, of_other = cut_mantissa(first, bits), cut_mantissa(other, bits)
        if not in_parts:
            return product(large, of_other)
        small, small_of_other = cut_mantissa(first - large, bits), cut_mantissa(other - of_other, bits)
        return product(large, small_of_other) + product(small, of_other) + product(large, of_other)

    return multiply


@contextmanager
def emulate_products(bits: int, *, in_parts: bool = False) -> Iterator[None]:
    """Give AdaPM's products with a gradient, where it asks for "high", and A B operands of so many bits within the
    block."""

    def narrow(product: Product) -> Callable[..., Tensor]:
        def multiply(rows: Tensor, matrix: Tensor, *, precision: str = "highest") -> Tensor:
            return (narrowed(product, bits, in_parts=in_parts) if precision == "high" else product)(rows, matrix)

        return multiply

    def add_product(base: Tensor, first: Tensor, other: Tensor, *, beta: float, alpha: float) -> Tensor:
        return base * beta + alpha * narrowed(torch.matmul, bits, in_parts=in_parts)(first, other)

    def times(rows: Tensor, matrix: Tensor) -> Tensor:
        return narrowed(devices.times, bits, in_parts=in_parts)(rows, matrix)

    with ExitStack() as stack:
        stack.enter_context(patch.object(low_rank, "times", narrow(devices.times)))
        stack.enter_context(patch.object(low_rank, "times_transposed", narrow(devices.times_transposed)))
        stack.enter_context(patch("optim.adapm.step.times", times))
        stack.enter_context(patch("optim.adapm.step.add_product", add_product))
        yield
