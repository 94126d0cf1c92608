"""Products: one answer, whichever library works it out."""

import pytest
import torch

from optim import products


@pytest.fixture(params=[1, 2**60], ids=["oneDNN", "MKL"])
def library(request, monkeypatch):
    monkeypatch.setattr(products, "_WORTH_IT", request.param)


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
    torch.testing.assert_close(products.times_transposed(right.to(dtype), given), (right @ matrix.mT).to(dtype))
    torch.testing.assert_close(products.times(left.to(dtype), given), (left @ matrix).to(dtype))


def test_a_part_of_a_fused_matrix_is_copied_only_for_large_products():
    fused = torch.randn(16, 48)
    part = fused[:, :16]
    assert products.laid_out(part, rows=2) is part
    large = torch.randn(512, 1536)[:, :512]
    assert products.laid_out(large, rows=1) is large
    assert torch.equal(products.laid_out(large, rows=30), large)
    assert products.laid_out(large.contiguous(), rows=30).is_contiguous()


def test_a_batch_is_multiplied_matrix_by_matrix(library):
    matrices, rows = torch.randn(3, 8, 6), torch.randn(3, 2, 6)
    torch.testing.assert_close(products.times_transposed(rows, matrices), rows @ matrices.mT)
