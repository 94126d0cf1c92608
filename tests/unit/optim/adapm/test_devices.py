"""Row chunks cover a block once, in order; products have one answer, whichever library works them out."""

from operator import attrgetter
from typing import Any

import pytest
import torch

from optim.adapm import AdaPM, devices
from optim.adapm.devices import row_chunks
from optim.plan.blocks import BlockPlan
from tests.factories.blocks import matrix_block

BACKENDS: Any = torch.backends  # torch publishes no types for all of them


@pytest.mark.parametrize(
    "shape", [(1,), (5,), (7, 3), (1000, 600), (600, 1000), (3, 400_000), (600_000,), (70, 80, 90)]
)
def test_the_chunks_cover_every_row_once_and_in_order(shape):
    tensor = torch.arange(torch.Size(shape).numel()).view(shape)
    assert torch.equal(torch.cat([tensor[rows] for rows in row_chunks(tensor)]), tensor)


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
    operand = matrix.to(dtype) if not part else whole.to(dtype)[:, 20:50].mT if turned else whole.to(dtype)[:, 20:50]
    right, left = (torch.randn(5, length, dtype=torch.float64) for length in reversed(matrix.shape))
    torch.testing.assert_close(devices.matmul_transposed(right.to(dtype), operand), (right @ matrix.mT).to(dtype))
    torch.testing.assert_close(devices.matmul(left.to(dtype), operand), (left @ matrix).to(dtype))


@pytest.fixture
def torch_as_it_starts():
    """Reset torch's precision, as in a new process; and again afterwards."""
    if not hasattr(BACKENDS.mkldnn, "matmul"):
        pytest.skip("torch has a switch for each device since 2.9")

    def forget() -> None:
        torch.set_float32_matmul_precision("highest")
        for switch in (BACKENDS.cuda.matmul, BACKENDS.mkldnn.matmul, BACKENDS):
            switch.fp32_precision = "none"

    forget()
    yield
    forget()


def _switches() -> tuple[str, ...]:
    """Return torch's settings, by its older switch, where that answers, and by the newer ones."""
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = ""
    return older, *(backend.fp32_precision for backend in (BACKENDS, BACKENDS.cuda.matmul, BACKENDS.mkldnn.matmul))


@pytest.mark.parametrize(
    ("switch", "word", "on_cpu", "on_cuda"),
    [
        ("older", "highest", "highest", "highest"),
        ("older", "high", "high", "high"),
        ("older", "medium", "medium", "high"),
        ("backends.cuda.matmul", "tf32", "highest", "high"),
        ("backends.mkldnn.matmul", "tf32", "high", "highest"),
        ("backends.mkldnn.matmul", "bf16", "medium", "highest"),
        ("backends", "tf32", "high", "high"),
        ("backends", "bf16", "medium", "highest"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_step_is_exact_whatever_torch_is_set_to_and_leaves_it_so(
    torch_as_it_starts, switch, word, on_cpu, on_cuda, device
):
    if switch == "older":
        torch.set_float32_matmul_precision(word)
    else:
        attrgetter(switch)(torch).fp32_precision = word
    switches = _switches()
    with devices.exact_products(torch.device(device)) as setting:
        assert setting == (on_cpu if device == "cpu" else on_cuda)
        exact = _switches()
        assert exact[0] == "highest" and {"tf32", "bf16"}.isdisjoint(exact[2:])
        with devices._matmul_precision("medium"):
            assert _switches()[0] == "medium" and _switches()[2:] == ("tf32", "bf16")
        assert _switches() == exact
    assert _switches() == switches


@pytest.mark.parametrize("asked", ["highest", "medium"])
def test_products_with_a_gradient_are_narrow_on_a_cpu_where_that_is_asked_for_and_gram_matrices_are_not(
    torch_as_it_starts, asked
):
    """A processor that has no products of bfloat16 works out exact ones."""
    if asked == "medium":
        BACKENDS.mkldnn.matmul.fp32_precision = "bf16"
    weight = torch.nn.Parameter(torch.zeros(768, 1024))
    weight.grad = torch.randn(768, 64) @ torch.randn(64, 1024) + 0.1 * torch.randn(768, 1024)
    optimizer = AdaPM([("w", weight)], 1e-3, plan=BlockPlan((matrix_block((768, 1024), rank=38),)))
    optimizer.step()
    (state,) = optimizer.state.values()
    left, right = state["momentum_left"].double(), state["momentum_right"].double()
    gram = left.mT @ left
    assert torch.allclose(gram, torch.eye(len(gram), dtype=torch.float64), atol=1e-5)
    exact = 0.1 * left.mT @ weight.grad.double()
    missed = ((right - exact).norm() / exact.norm()).item()
    assert missed < (1e-6 if asked == "highest" else 2**-7)


def test_an_error_leaves_torch_as_it_was(torch_as_it_starts):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError), devices.exact_products(torch.device("cpu")):
        raise RuntimeError
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
