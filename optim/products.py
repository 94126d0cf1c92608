"""Products with a large matrix on a CPU, by whichever library is faster there.

torch multiplies float32 matrices through MKL, which falls back to its AVX2 kernels on processors that are not Intel's;
oneDNN, the other library inside torch, writes its kernels for the instructions that it finds. On one AMD core with
AVX-512, G 768 × 3072 and 38 rows: X G^T 78 against 149 GFLOP/s, X G 81 against 191, L R 80 against 202. oneDNN is slow on
small matrices and very slow on parts of a matrix whose rows lie apart, so those go to torch, or are copied (`laid_out`).

torch reaches oneDNN for float32 only through the operator that its own compiler emits for linear layers,
`torch.ops.mkldnn._linear_pointwise`; where a release lacks it, everything goes through `torch.mm`.
"""

import torch
from torch import Tensor

# X G^T of a 128 × 512 matrix takes oneDNN 20 us and MKL 16, of a 256 × 1024 matrix 67 and 104.
_WORTH_IT_ELEMENTS = 2**17


def times_transposed(rows: Tensor, matrix: Tensor) -> Tensor:
    """X G^T (r × m), for r rows X of length n and G m × n; or a batch of such."""
    if _suits(matrix) and rows.dtype is matrix.dtype:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")
        return product
    return rows @ matrix.mT


def times(rows: Tensor, matrix: Tensor) -> Tensor:
    """X G (r × n), for r rows X of length m and G m × n; or a batch of such."""
    return times_transposed(rows, matrix.mT)


def outer(left: Tensor, right: Tensor) -> Tensor:
    """L R (m × n), large, of L m × r and R r × n."""
    if left.shape[0] * right.shape[1] >= _WORTH_IT_ELEMENTS and _is_packed(right) and _is_onednns(right):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.mT, None, "none", [], "")
        return product
    return torch.mm(left, right)


def laid_out(matrix: Tensor) -> Tensor:
    """The matrix, copied where that makes several products with it faster."""
    worth_it = matrix.ndim == 2 and matrix.numel() >= _WORTH_IT_ELEMENTS and _is_onednns(matrix)
    return matrix if not worth_it or _is_packed(matrix) else matrix.contiguous()


def _suits(matrix: Tensor) -> bool:
    return (
        matrix.ndim == 2 and matrix.numel() >= _WORTH_IT_ELEMENTS and _is_onednns(matrix) and _is_packed(matrix)
    )


def _is_onednns(tensor: Tensor) -> bool:
    """Whether oneDNN is at hand for this type and device."""
    return _HAS_ONEDNN and tensor.dtype is torch.float32 and tensor.device.type == "cpu"


def _is_packed(matrix: Tensor) -> bool:
    """Whether the matrix, or its transpose, lies in memory without gaps."""
    return matrix.is_contiguous() or matrix.mT.is_contiguous()


_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
