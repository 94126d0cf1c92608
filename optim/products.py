"""Products with a large matrix on a CPU, by whichever library is faster there.

torch multiplies float32 matrices through MKL, which falls back to its AVX2 kernels on processors that are not Intel's;
oneDNN, the other library inside torch, writes its kernels for the instructions that it finds. On one AMD core with
AVX-512, G 768 × 3072 and 38 rows: X G^T 78 against 149 GFLOP/s, X G 81 against 191, L R 80 against 202. oneDNN is
slow on small matrices, and very slow where rows do not lie next to each other: those go to MKL, or are copied first.

torch reaches oneDNN for float32 only through the operator that its own compiler emits for linear layers,
`torch.ops.mkldnn._linear_pointwise`; where a release lacks it, everything goes through `torch.mm`.
"""

import torch
from torch import Tensor

from optim import accelerators

# Multiply-adds; 128 × 512 by 6 rows take oneDNN 20 us and MKL 16, 256 × 1024 by 13 rows 67 and 104.
_WORTH_IT = 2**21


def times_transposed(rows: Tensor, matrix: Tensor) -> Tensor:
    """X G^T (r × m), for r rows X of length n and G m × n; or a batch of such."""
    if _suits_onednn(rows, matrix) and _is_packed(matrix):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")
        return product
    return rows @ matrix.mT


def times(rows: Tensor, matrix: Tensor) -> Tensor:
    """X G (r × n), for r rows X of length m and G m × n; or a batch of such."""
    return times_transposed(rows, matrix.mT)


def laid_out(matrix: Tensor, *, rows: int) -> Tensor:
    """The matrix, copied where that makes products with so many rows faster."""
    if matrix.ndim != 2 or _is_packed(matrix) or not _suits_onednn(matrix[:rows], matrix):
        return matrix
    return matrix.contiguous()


def _suits_onednn(rows: Tensor, matrix: Tensor) -> bool:
    return (
        _HAS_ONEDNN
        and matrix.ndim == 2
        and rows.shape[0] * matrix.numel() >= _WORTH_IT
        and matrix.dtype is rows.dtype is torch.float32
        and not accelerators.is_accelerator(matrix.device)
    )


def _is_packed(matrix: Tensor) -> bool:
    """Whether the matrix, or its transpose, lies in memory without gaps."""
    return matrix.is_contiguous() or matrix.mT.is_contiguous()


_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
    torch.ops.mkldnn, "_linear_pointwise"
)
