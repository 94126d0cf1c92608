"""Row chunks cover a block once, in order."""

import pytest
import torch

from optim.rows import row_chunks


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
