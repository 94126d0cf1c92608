"""The elementwise part of a step in one pass over memory on a CPU: C, compiled when first needed.

`compiled.py` has the formulas. torch's compiler makes the same pass of them, but takes far longer to start and for each
kind of block. What is compiled lives as long as the process: a file that is kept would have to fit the processor and
the compiler that next meet it.
"""

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

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

/* The sum of squares of each column; of 32 rows at a time, since sums of many small numbers lose digits. */
void column_square_sums(ptrdiff_t rows, ptrdiff_t columns, const float *matrix, ptrdiff_t stride, float *sums,
                        int threads)
{
    enum { WIDTH = 256, DEPTH = 32 };
#pragma omp parallel for num_threads(threads)
    for (ptrdiff_t first = 0; first < columns; first += WIDTH) {
        const ptrdiff_t width = columns - first < WIDTH ? columns - first : WIDTH;
        float total[WIDTH] = {0};
        for (ptrdiff_t top = 0; top < rows; top += DEPTH) {
            const ptrdiff_t end = rows - top < DEPTH ? rows : top + DEPTH;
            float part[WIDTH] = {0};
            for (ptrdiff_t i = top; i < end; i++)
                for (ptrdiff_t j = 0; j < width; j++)
                    part[j] += matrix[i * stride + first + j] * matrix[i * stride + first + j];
            for (ptrdiff_t j = 0; j < width; j++)
                total[j] += part[j];
        }
        for (ptrdiff_t j = 0; j < width; j++)
            sums[first + j] = total[j];
    }
}
"""
FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-x", "c"),
    *("-fno-math-errno", "-fno-trapping-math"),  # roots and limits of several numbers at once
    "-ffp-contract=off",  # every operation rounds, on each processor alike
)
COMPILE_SECONDS = 120.0
_PLAIN = (Tensor, nn.Parameter)
"""Others, torch's fake ones for instance, may have no memory to write to."""


def compiler() -> str | None:
    """The C compiler of this machine; None where there is none."""
    return next((name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and shutil.which(name)), None)


@cache
def library() -> ctypes.CDLL:
    """The code, compiled for this processor.

    Raises:
        OSError: it cannot be compiled here, or not be loaded.
    """
    with TemporaryDirectory(prefix="adapm-") as folder:
        made = Path(folder) / "step.so"
        found = subprocess.run(
            [compiler() or "cc", *FLAGS, "-", "-o", str(made), "-lm"],
            input=SOURCE,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS,
            check=False,
        )
        if found.returncode != 0:
            raise OSError(f"{compiler()} failed: {found.stderr.strip()[-500:]}")
        loaded = ctypes.CDLL(str(made))
    size, address, number = ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int
    pairs: list[Any] = [address, size] * 5
    loaded.move.argtypes = [size, size, *pairs, number, address, number]
    loaded.column_square_sums.argtypes = [size, size, address, size, address, number]
    loaded.move.restype = loaded.column_square_sums.restype = None
    return loaded


def is_supported(*tensors: object) -> bool:
    """Whether they are float32 on a CPU, in memory of their own, each row's elements side by side."""
    return all(
        isinstance(each, Tensor)
        and type(each) in _PLAIN
        and (each.device.type, each.dtype, each.stride(-1)) == ("cpu", torch.float32, 1)
        for each in tensors
    )


def move(
    weight: Tensor,
    gradient: Tensor,
    product: Tensor | None,
    moment: Tensor | None,
    divisor: Tensor | None,
    numbers: Tensor,
) -> None:
    """As `compiled.move`, where weight, gradient and moment are supported."""
    rows, columns = weight.shape
    by_row = divisor is not None and divisor.shape == (rows, 1)
    product, divisor = (None if each is None else each.contiguous() for each in (product, divisor))
    torch.autograd.graph.increment_version(weight)  # as for whatever torch writes to
    parts = [item for each in (weight, gradient, product, moment, divisor) for item in _place(each)]
    library().move(rows, columns, *parts, by_row, numbers.data_ptr(), torch.get_num_threads())


def column_square_sums(matrix: Tensor) -> Tensor:
    """As `compiled.column_square_sums`, of a matrix that is supported."""
    sums = torch.empty(matrix.shape[1])
    library().column_square_sums(*matrix.shape, *_place(matrix), sums.data_ptr(), torch.get_num_threads())
    return sums


def _place(tensor: Tensor | None) -> tuple[int | None, int]:
    """(address, stride of its rows)."""
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))
