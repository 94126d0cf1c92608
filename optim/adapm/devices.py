"""What differs between a step on a CPU and on an accelerator: sizes and libraries, and no formula.

    CPU                                                accelerator
    pieces of 2^18 elements, which fit into a cache    pieces of 2^24 (64 MiB)
    products by oneDNN, in bfloat16 where asked        torch's own
    large models in float32 by C (`compiled.py`)       matrices by our kernels on CUDA (`kernels.py`)

Pieces: a block of GPT-2's embedding is 154 MB. Its update needs two temporaries of its size; on a CPU, writing those to
memory (and having it mapped) takes longer than the arithmetic. By rows, they never leave the cache. Blocks that are
smaller than a piece are worked on several at a time (`step.py`), up to one piece together.

Precision: a Gram matrix in TF32, which has 11 bits, would tell no orthonormal rows from others, and users set TF32 for
their model by `torch.set_float32_matmul_precision("high")`. So a step works in IEEE float32 (`exact_products`) but for
its products with a gradient, which `matmul` and `matmul_transposed` work out as they are asked to.

Products: torch multiplies float32 matrices through MKL, which falls back to its AVX2 kernels on processors that are not
Intel's; oneDNN, the other library inside torch, writes its kernels for the instructions that it finds. On one idle AMD
core with AVX-512, G 768 × 3072 and 38 rows: X G^T 78 against 149 GFLOP/s, X G 81 against 191, L R 80 against 202. It is
slow on small matrices, which go to MKL, and very slow where rows do not lie next to each other: solvers get a copy of
such a slice. torch reaches oneDNN for float32 only through the operator that its own compiler emits for linear layers,
`torch.ops.mkldnn._linear_pointwise`; where a release lacks it, everything goes through `torch.mm`.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

MATMUL_PRECISIONS = ("highest", "high", "medium")
"""The precisions of products with a gradient, in torch's words: as exact as float32; in TF32; in bfloat16, which on
CUDA is TF32, too. Where a device has no such products they are as exact as float32."""
_COUNTS_SEVERAL = torch.__version__ >= "2.6"  # which compares as versions do


def is_capturing() -> bool:
    """Return whether a CUDA graph records what is asked of the device now, instead of its being done."""
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch publishes no types for it
    return initialized and torch.cuda.is_current_stream_capturing()


_READ_BY_GRAPHS: set[Tensor] = set()
"""Tensors that a CUDA graph may read at any time: their memory stays as long as the process."""


class _TensorCache:
    def __init__(self, make: Callable[..., Tensor], maxsize: int) -> None:
        self._make, self._maxsize = make, maxsize
        self._kept: dict[tuple[Hashable, ...], Tensor] = {}

    def __call__(self, *key: Hashable) -> Tensor:
        tensor = self._kept.get(key)
        if tensor is None:
            tensor = self._make(*key)
            if type(tensor) is Tensor and not is_capturing():  # torch's fake ones have no values, either
                if len(self._kept) >= self._maxsize:
                    self._kept.pop(next(iter(list(self._kept))), None)
                self._kept[key] = tensor
        elif is_capturing():
            _READ_BY_GRAPHS.add(tensor)
        return tensor

    def cache_clear(self) -> None:
        """Forget all of them."""
        self._kept.clear()


def cache_tensors(maxsize: int) -> Callable[[Callable[..., Tensor]], _TensorCache]:
    """Keep the tensors that a function made of these arguments; so many, the oldest go first.

    `lru_cache` knows nothing of graphs: what one records the making of has no values before it is replayed, so that it
    is made there for that graph alone; and what one records the reading of must not be dropped while the graph lives.
    """
    return partial(_TensorCache, maxsize=maxsize)


@cache_tensors(maxsize=256)
def constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return one number on that device, filled in there; do not write to it."""
    return torch.full((), value, dtype=dtype, device=device)


def increment_versions(tensors: Sequence[Tensor]) -> None:
    """Count a change of each, as torch does of what its operators write to (but for `_fused_adamw_`, which forgets)."""
    if _COUNTS_SEVERAL:
        torch.autograd.graph.increment_version(tensors)
    else:
        for tensor in tensors:
            torch.autograd.graph.increment_version(tensor)


Rows = slice | EllipsisType
"""Rows of a block; `...` for all of it, also where it has no rows (a scalar)."""

# Best of 2^15 … 2^20 on GPT-2 124M shapes, one core; flat from 2^17 to 2^19.
_CPU_CHUNK_ELEMENTS = 2**18
COMPILED_CHUNK_ELEMENTS = 2**22
"""The elements of factors that compiled code gets at a time on a CPU: of 2^16 … 2^22 the best on GPT-2 124M shapes; 16
MiB at most."""
# 64 MiB of float32: a launch costs nothing beside it, and three of them bound what a large block needs for a while.
_ACCELERATOR_CHUNK_ELEMENTS = 2**24


def chunk_elements(device: torch.device) -> int:
    """Return the number of a block's elements that torch's operators work on at a time there."""
    return _CPU_CHUNK_ELEMENTS if device.type == "cpu" else _ACCELERATOR_CHUNK_ELEMENTS


def row_chunks(tensor: Tensor, limit: int | None = None) -> Iterator[Rows]:
    """Cover the tensor by rows, in pieces of at most `limit` elements: a chunk, unless less is asked for."""
    limit = chunk_elements(tensor.device) if limit is None else limit
    if tensor.ndim == 0 or tensor.numel() <= limit:
        yield ...
        return
    rows = tensor.shape[0]
    step = max(1, limit * rows // tensor.numel())
    for start in range(0, rows, step):
        yield slice(start, start + step)


# Multiply-adds: below, MKL is quicker (128 × 512 by 6 rows), from there on oneDNN (256 × 1024 by 13 rows).
_ONEDNN_FROM = 2**21
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]  # torch's own
    torch.ops.mkldnn, "_linear_pointwise"
)
_SWITCHES: tuple[Any, ...] = (
    (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul) if hasattr(torch.backends.mkldnn, "matmul") else ()
)
"""The switches of CUDA and of the CPU; torch has them since 2.9, beside the older one for both."""


@contextmanager
def exact_products(device: torch.device) -> Iterator[str]:
    """Multiply float32 matrices in IEEE float32 within the block, whatever the user asked of torch; yields that earlier
    precision of the device."""
    if _SWITCHES:
        precisions = [{"tf32": "high", "bf16": "medium"}.get(switch.fp32_precision, "highest") for switch in _SWITCHES]
    else:
        precisions = [torch.get_float32_matmul_precision()] * 2
    with nullcontext() if precisions == ["highest", "highest"] else _matmul_precision("highest"):
        yield precisions[device.type == "cpu"]


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    """Multiply float32 matrices in that precision within the block, on every device.

    torch has an older switch, which moves its newer ones for CUDA and CPU along, and does not answer where they
    disagree. A newer one may only pass on what `torch.backends.fp32_precision` says.
    """
    settings = {switch: switch.fp32_precision for switch in _SWITCHES}
    try:
        old_precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # only the newer ones were touched
        old_precision = "highest"
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(old_precision)
        for switch, setting in settings.items():
            switch.fp32_precision = "none"
            if switch.fp32_precision != setting:
                switch.fp32_precision = setting


def matmul_transposed(rows: Tensor, matrix: Tensor, *, precision: str = "highest") -> Tensor:
    """Return X G^T (r × m), for r rows X of length n and G m × n; or a batch of such."""
    with nullcontext() if precision == "highest" else _matmul_precision(precision):
        if rows.dtype is matrix.dtype and _suits_onednn(rows.shape[0], matrix) and _is_packed(matrix):
            product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")
            return product
        return product_of(rows, matrix.mT)


def product_of(matrix: Tensor, other: Tensor) -> Tensor:
    """Return the product of two matrices, or of two batches: torch's `@` makes views of both first."""
    product: Tensor = torch.bmm(matrix, other) if matrix.ndim == other.ndim == 3 else matrix @ other
    return product


def matmul(rows: Tensor, matrix: Tensor, *, precision: str = "highest") -> Tensor:
    """Return X G (r × n), for r rows X of length m and G m × n; or a batch of such."""
    return matmul_transposed(rows, matrix.mT, precision=precision)


def pack(matrix: Tensor, *, rows: int) -> Tensor:
    """Return the matrix, copied where that makes products with so many rows faster: a slice of a fused matrix has
    gaps."""
    return matrix.contiguous() if _suits_onednn(rows, matrix) and not _is_packed(matrix) else matrix


def _suits_onednn(rows: int, matrix: Tensor) -> bool:
    return (
        _HAS_ONEDNN
        and matrix.ndim == 2
        and rows * matrix.numel() >= _ONEDNN_FROM
        and matrix.dtype is torch.float32
        and matrix.is_cpu
    )


def _is_packed(matrix: Tensor) -> bool:
    return matrix.is_contiguous() or matrix.mT.is_contiguous()
