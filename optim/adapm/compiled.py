"""The elementwise part of a step in one pass over memory, by code that is compiled when first needed; and where it is.

    m = product + weight_of_gradient G                what the momentum's factors give, and the gradient
    v = b2 v + (1 - b2) G * G                         where v is kept for each element; else worked out before
    W = (1 - lr wd) W - lr clip(m / (sqrt(v / debias) + eps), c)

Done by torch's own operators that is ten passes (`step.py`), here one that reads and writes each tensor once. On CUDA
`kernels.py` works out the product, too, and moves all blocks of a group in one launch. On a CPU this C moves float32
matrices: torch's compiler makes the same pass of the formulas, but takes far longer to start, and for each kind of
block. What is compiled lives as long as the process: a file that is kept would have to fit the processor and the
compiler that next meet it.
"""

import ctypes
import os
import shutil
import subprocess
import warnings
from functools import cache
from itertools import chain
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._triton import has_triton

# A step of GPT-2 124M takes less (docs/LOG.md); one of a million parameters does not.
_CPU_PAYS_ELEMENTS = 2**26
# Below, a block is cheaper by torch's own operators, several blocks a call, than by a compiled call.
_CPU_SMALLEST_BLOCK = 2**16
FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-x", "c"),
    *("-fno-math-errno", "-fno-trapping-math"),  # roots and limits of several numbers at once
    "-ffp-contract=off",  # every operation rounds, on each processor alike
)
COMPILE_SECONDS = 120.0
SOURCE = r"""
#include <math.h>
#include <stddef.h>

/* W, and v where there is one, in place. The stride of a tensor is that of its rows; columns lie side by side.
   by: the weights of G and of the product in m, b2, 1 - b2, debias^-1/2, eps, c, 1 - lr * weight decay, lr. */
void move(ptrdiff_t rows, ptrdiff_t columns, float *weight, ptrdiff_t weight_stride, const float *gradient,
          ptrdiff_t gradient_stride, const float *product, ptrdiff_t product_stride, float *moment,
          ptrdiff_t moment_stride, const float *divisor, ptrdiff_t divisor_row_stride, int is_by_row, const float *by,
          int threads)
{
    const float b0 = by[0], b1 = by[1], b2 = by[2], b3 = by[3], b4 = by[4], b5 = by[5], limit = by[6], b7 = by[7],
                b8 = by[8];
#define EACH(NUMERATOR, DIVISOR)                                                                                       \
    for (ptrdiff_t j = 0; j < columns; j++) {                                                                          \
        const float x = g[j];                                                                                          \
        const float root = (DIVISOR);                                                                                  \
        float step = (NUMERATOR) / root;                                                                               \
        step = step < -limit ? -limit : step; /* NaN stays */                                                          \
        step = step > limit ? limit : step;                                                                            \
        w[j] = w[j] * b7 - step * b8;                                                                                  \
    }
#define ROW(DIVISOR)                                                                                                   \
    if (p)                                                                                                             \
        EACH(x * b0 + p[j] * b1, DIVISOR)                                                                              \
    else                                                                                                               \
        EACH(x * b0, DIVISOR)
#pragma omp parallel for num_threads(threads)
    for (ptrdiff_t i = 0; i < rows; i++) {
        float *restrict w = weight + i * weight_stride;
        const float *restrict g = gradient + i * gradient_stride;
        const float *restrict p = product ? product + i * product_stride : NULL;
        if (moment) {
            float *restrict v = moment + i * moment_stride;
            ROW(sqrtf(v[j] = v[j] * b2 + x * x * b3) * b4 + b5)
        } else if (is_by_row) {
            const float shared = divisor[i * divisor_row_stride];
            ROW(shared)
        } else {
            const float *restrict d = divisor;
            ROW(d[j])
        }
    }
}
"""


def should_compile(choice: bool | None, elements: int, device: torch.device) -> bool:
    """Return whether to compile for a plan of so many elements on that device.

    Args:
        choice: The user's choice; None decides here: yes on CUDA with Triton, and on a CPU with a C compiler for
            models of 67 million parameters and more.
        elements: Of all blocks together.
        device: Where the parameters are.

    Raises:
        RuntimeError: the user asks for it, and this machine has no compiler for the device.
    """
    can = choice is not False and has_compiler(device.type)
    if choice and not can:
        raise RuntimeError(
            f"compile=True needs a compiler for {device.type}: a C compiler on the PATH (or in CC) for the CPU, Triton "
            f"for CUDA; leave compile=None to do without where there is none"
        )
    return can and (choice or device.type != "cpu" or elements >= _CPU_PAYS_ELEMENTS)


@cache
def has_compiler(device_type: str) -> bool:
    """Return whether there is what it takes to compile for that type of device."""
    if device_type == "cuda":
        return bool(has_triton())
    return device_type == "cpu" and _c_compiler() is not None


def _c_compiler() -> str | None:
    return next((name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and shutil.which(name)), None)


@cache
def kernels_for(device: torch.device) -> ModuleType | None:
    """Return `kernels.py` if its kernel runs on that device, which is tried once; else None."""
    if device.type != "cuda" or not has_compiler(device.type):
        return None
    from triton.errors import TritonError  # only torch for CUDA brings Triton

    from . import kernels  # imports Triton

    try:
        kernels.try_on(device)
    except (TritonError, RuntimeError, OSError, subprocess.CalledProcessError) as error:
        warnings.warn(f"AdaPM's kernel does not run on {device}, and a step is slower: {error}", stacklevel=2)
        return None
    return kernels


def is_worth_compiling(shape: tuple[int, ...], weight: Tensor) -> bool:
    """Return whether C moves blocks of that shape: large, in float32 on a CPU, each row's elements side by side."""
    return (
        len(shape) == 2
        and prod(shape) >= _CPU_SMALLEST_BLOCK
        and type(weight) in (Tensor, FakeTensor)  # others may have no memory to write to
        and (weight.device.type, weight.dtype, weight.stride(-1)) == ("cpu", torch.float32, 1)
        and library() is not None
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the C code, compiled for this processor, which is tried once; else None."""
    try:
        with TemporaryDirectory(prefix="adapm-") as folder:
            path = Path(folder) / "step.so"
            command = [_c_compiler() or "cc", *FLAGS, "-", "-o", str(path), "-lm"]
            compilation = subprocess.run(
                command, input=SOURCE, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
            )
            if compilation.returncode != 0:
                raise OSError(f"{command[0]} failed: {compilation.stderr.strip()[-500:]}")
            loaded = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        warnings.warn(f"a step of AdaPM could not be compiled, and is slower: {error}", RuntimeWarning, stacklevel=2)
        return None
    size, address, number = ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int
    pairs: list[Any] = [address, size] * 5
    loaded.move.argtypes = [size, size, *pairs, number, address, number]
    loaded.move.restype = None
    return loaded


def move(
    weight: Tensor,
    gradient: Tensor,
    product: Tensor | None,
    moment: Tensor | None,
    divisor: Tensor | None,
    numbers: Tensor,
) -> None:
    """Update W in place, and v if it is kept for each element, of a block that is worth compiling.

    Args:
        weight: W, m × n.
        gradient: G, m × n.
        product: What is added to G's part of the numerator, m × n; None for nothing.
        moment: v, m × n; None if rows or columns share one.
        divisor: Then sqrt(v / debias) + eps, m × 1 or 1 × n; else None.
        numbers: The weights of G and of the product in m, b2, 1 - b2, debias^-1/2, eps, c, 1 - lr × weight decay, lr.
    """
    rows, columns = weight.shape
    by_row = divisor is not None and divisor.shape == (rows, 1)
    product, divisor = (None if tensor is None else tensor.contiguous() for tensor in (product, divisor))
    if isinstance(weight, FakeTensor):  # of which memory alone is counted
        return
    torch.autograd.graph.increment_version(weight)  # as for whatever torch writes to
    operands = (weight, gradient, product, moment, divisor)
    parts = [(None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0)) for tensor in operands]
    code = library()
    assert code is not None
    code.move(rows, columns, *chain.from_iterable(parts), by_row, numbers.data_ptr(), torch.get_num_threads())
