"""Row chunks cover a block once, in order; products have one answer, whichever library works them out."""

from typing import Any

import pytest
import torch

from optim.adapm import devices
from optim.adapm.devices import row_chunks


@pytest.mark.parametrize(
    "shape", [(1,), (5,), (7, 3), (1000, 600), (600, 1000), (3, 400_000), (600_000,), (70, 80, 90)]
)
def test_the_chunks_cover_every_row_once_and_in_order(shape):
    tensor = torch.arange(torch.Size(shape).numel()).view(shape)
    assert torch.equal(torch.cat([tensor[rows] for rows in row_chunks(tensor)]), tensor)


def test_no_chunk_holds_more_than_a_mebibyte_of_float32_unless_one_row_does():
    tensor = torch.empty(1000, 600)
    assert max(tensor[rows].numel() for rows in row_chunks(tensor)) <= 2**18


@pytest.mark.parametrize("shape", [(), (3,), (512, 512)])
def test_a_small_block_is_one_chunk(shape):
    assert list(row_chunks(torch.empty(shape))) == [...]


def test_an_accelerators_block_is_one_chunk_up_to_64_mebibytes():
    assert list(row_chunks(torch.empty(4096, 4096, device="meta"))) == [...]
    assert list(row_chunks(torch.empty(8192, 4096, device="meta"))) == [slice(0, 4096), slice(4096, 8192)]


@pytest.fixture(params=[1, 2**60], ids=["oneDNN", "MKL"])
def library(request, monkeypatch):
    monkeypatch.setattr(devices, "_ONEDNN_FROM", request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_both_products_agree_with_float64(library, dtype, turned, part):
    torch.manual_seed(0)
    whole = torch.randn(70, 60, dtype=torch.float64)
    matrix = whole[:, 20:50] if part else whole
    matrix = matrix.mT if turned else matrix
    given = matrix.to(dtype) if not part else whole.to(dtype)[:, 20:50].mT if turned else whole.to(dtype)[:, 20:50]
    right, left = (torch.randn(5, length, dtype=torch.float64) for length in reversed(matrix.shape))
    torch.testing.assert_close(devices.times_transposed(right.to(dtype), given), (right @ matrix.mT).to(dtype))
    torch.testing.assert_close(devices.times(left.to(dtype), given), (left @ matrix).to(dtype))


def test_a_batch_is_multiplied_matrix_by_matrix(library):
    matrices, rows = torch.randn(3, 8, 6), torch.randn(3, 2, 6)
    torch.testing.assert_close(devices.times_transposed(rows, matrices), rows @ matrices.mT)


def test_a_slice_is_copied_only_where_products_with_it_are_large():
    part = torch.randn(512, 1536)[:, 512:1024]
    packed = devices.pack(part, rows=26)
    assert packed.is_contiguous() and torch.equal(packed, part)
    assert devices.pack(part, rows=1) is part
    assert devices.pack(packed.mT, rows=26).data_ptr() == packed.data_ptr()
    with devices.simulate_accelerator():
        assert devices.pack(part, rows=26) is part


@pytest.fixture
def torch_as_it_starts():
    """No precision is asked of torch, as in a new process; and again afterwards."""

    def forget() -> None:
        torch.set_float32_matmul_precision("highest")
        backends: Any = torch.backends  # torch publishes no types for all of them
        for switch in (backends.cuda.matmul, backends.mkldnn.matmul, backends):
            switch.fp32_precision = "none"

    forget()
    yield
    forget()


@pytest.mark.parametrize("asked", ["highest", "high", "medium"])
def test_a_step_is_exact_whatever_torch_is_set_to_and_leaves_it_so(torch_as_it_starts, asked):
    if asked != "highest":
        torch.set_float32_matmul_precision(asked)
    before = torch.backends.cuda.matmul.fp32_precision
    with devices.exact_products() as precision:
        assert torch.backends.cuda.matmul.fp32_precision != "tf32"
        assert torch.get_float32_matmul_precision() == "highest"
        with devices._cuda_products("tf32"):
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.backends.cuda.matmul.fp32_precision != "tf32"
    assert precision == ("highest" if asked == "highest" else "high")
    assert (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision) == (asked, before)


def test_torchs_newer_switch_is_heeded_too(torch_as_it_starts):
    """torch refuses a mixture of both, so that the older is not touched."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with devices.exact_products() as precision:
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert (precision, torch.backends.cuda.matmul.fp32_precision) == ("high", "tf32")
    with pytest.raises(RuntimeError), devices.exact_products():
        raise RuntimeError
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
