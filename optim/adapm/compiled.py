"""The elementwise part of a step in one pass over memory: by our Triton kernel on CUDA, by our C on a CPU, else by
`torch.compile`.

    m = product + weight_of_gradient G                what the momentum's factors give, and the gradient
    v = b2 v + (1 - b2) G * G                         where v is kept for each element; else worked out before
    W = (1 - lr wd) W - lr clip(m / (sqrt(v / debias) + eps), c)

Done by torch's own operators that is ten passes, here one that reads and writes each tensor once. The numbers of a step
are given as a tensor, so that a learning-rate schedule compiles nothing anew; shapes are dynamic. `step.py` has
the same formulas for the rest: small blocks, and machines without a compiler.

On CUDA `kernels.py` works out the product, too, and moves all blocks of a batch in one launch; Triton compiles it
quickly. On a CPU `cpu_code.py` moves float32 matrices, and a C compiler is as quick. torch's own compiler is left for
accelerators on which our kernel does not run: it takes longer, for each of two to six variants.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from subprocess import CalledProcessError, SubprocessError
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._triton import has_triton

from . import cpu_code, devices

# A step of GPT-2 124M takes less (docs/LOG.md); one of a million parameters does not.
_CPU_PAYS_ELEMENTS = 2**26
# Below, a block is cheaper by torch's own operators, several blocks a call, than by a compiled call.
_CPU_SMALLEST_BLOCK = 2**16
_ACCELERATOR_SMALLEST_BLOCK = 2**12
_VARIANTS = 64


def should_compile(asked: bool | None, elements: int, device: torch.device) -> bool:
    """Whether to compile for a plan of so many elements on that device.

    Args:
        asked: The user's word; None leaves it to us: yes on CUDA with Triton, and on a CPU with a C compiler for
            models of 67 million parameters and more.
        elements: Of all blocks together.
        device: Where the parameters are.

    Raises:
        RuntimeError: the user asks for it, and this machine has no compiler for the device.
    """
    if asked is False:
        return False
    if not has_compiler(device.type) and not devices.is_simulated():
        if asked:
            raise RuntimeError(
                f"compile=True needs a compiler for {device.type}: a C compiler on the PATH (or in CC) for the "
                f"CPU, Triton for CUDA; leave compile=None to do without where there is none"
            )
        return False
    return bool(asked) or devices.is_accelerator(device) or elements >= _CPU_PAYS_ELEMENTS


@cache
def has_compiler(device_type: str) -> bool:
    """Whether there is what it takes to compile for that type of device."""
    if device_type == "cuda":
        return bool(has_triton())
    return device_type == "cpu" and cpu_code.compiler() is not None


def is_worth_compiling(shape: tuple[int, ...], device: torch.device, *tensors: object) -> bool:
    """Whether blocks of that shape are large enough for compiled code, and their tensors such as it takes."""
    if devices.is_accelerator(device):
        return len(shape) == 2 and prod(shape) >= _ACCELERATOR_SMALLEST_BLOCK
    is_large = len(shape) == 2 and prod(shape) >= _CPU_SMALLEST_BLOCK
    return is_large and cpu_code.is_supported(*tensors) and _compiles_for_cpu()


@cache
def _compiles_for_cpu() -> bool:
    """Whether the C compiler of this machine does what it should, which is tried once."""
    try:
        cpu_code.library()
    except (OSError, SubprocessError) as error:
        warnings.warn(f"a step of AdaPM could not be compiled, and is slower: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


@cache
def kernels_for(device: torch.device) -> ModuleType | None:
    """`kernels.py` where its kernel runs on that device, which is tried once; else None."""
    if device.type != "cuda" or not has_compiler(device.type):
        return None
    from triton.errors import TritonError  # only torch for CUDA brings Triton

    from . import kernels  # imports Triton

    try:
        kernels.try_on(device)
    except (TritonError, RuntimeError, OSError, CalledProcessError) as error:
        warnings.warn(f"AdaPM's kernel does not run on {device}, and a step is slower: {error}", stacklevel=2)
        return None
    return kernels


def move(
    weight: Tensor,
    gradient: Tensor,
    product: Tensor | None,
    moment: Tensor | None,
    divisor: Tensor | None,
    numbers: Tensor,
) -> None:
    """W in place, and v where it is kept for each element.

    Args:
        weight: W, m × n.
        gradient: G, m × n.
        product: What is added to G's part of the numerator, m × n; None for nothing.
        moment: v, m × n; None where rows or columns share one.
        divisor: Then sqrt(v / debias) + eps, m × 1 or 1 × n; else None.
        numbers: In the type of the arithmetic: the weights of G and of the product in m, b2, 1 - b2, debias^-1/2, eps,
            c, 1 - lr × weight decay, lr.
    """
    if weight.device.type == "cpu" and not devices.is_simulated():
        cpu_code.move(weight, gradient, product, moment, divisor, numbers)
    else:
        _choose_callable(_move)(weight, gradient, product, moment, divisor, numbers)


def column_square_sums(matrix: Tensor) -> Tensor:
    """Sums of the squares of each column of m × n, in float32, or in float64 for float64."""
    if matrix.device.type == "cpu" and not devices.is_simulated():
        return cpu_code.column_square_sums(matrix)
    sums: Tensor = _choose_callable(_column_square_sums)(matrix)
    return sums


def _column_square_sums(matrix: Tensor) -> Tensor:
    exact = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    return (exact * exact).sum(dim=0)


def _move(
    weight: Tensor,
    gradient: Tensor,
    product: Tensor | None,
    moment: Tensor | None,
    divisor: Tensor | None,
    by: Tensor,
) -> None:
    exact = gradient.to(by.dtype)
    if moment is not None:
        averaged = moment.to(by.dtype) * by[2] + exact * exact * by[3]
        moment.copy_(averaged)
        divisor = averaged.sqrt() * by[4] + by[5]
    assert divisor is not None
    numerator = exact * by[0] if product is None else exact * by[0] + product * by[1]
    update = torch.clamp(numerator / divisor, -by[6], by[6])
    weight.copy_(weight.to(by.dtype) * by[7] - update * by[8])


@contextmanager
def room_for_variants(device: torch.device) -> Iterator[None]:
    """While this is open, torch may compile as many variants of one function as models in one process may need."""
    if device.type == "cpu":  # where torch compiles nothing
        yield
        return
    import torch._dynamo  # a second to import, and not needed by who compiles nothing

    with torch._dynamo.config.patch(recompile_limit=_VARIANTS):
        yield


def _choose_callable(function: Callable[..., Any]) -> Callable[..., Any]:
    return function if devices.is_simulated() else _compile(function)


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled, for shapes of any size; where the compiler fails, the function as it is."""
    from torch._dynamo.exc import TorchDynamoException  # loads the compiler

    made = torch.compile(function, dynamic=True, fullgraph=True)

    def call(*arguments: Any) -> Any:
        nonlocal made
        try:
            return made(*arguments)
        except TorchDynamoException as error:  # before anything has been computed
            warnings.warn(
                f"a step of AdaPM could not be compiled, and is slower: {error}", RuntimeWarning, stacklevel=2
            )
            made = function
            return function(*arguments)

    return call
