"""AdamW with 8-bit and 4-bit moments: close to AdamW, and what is told where torchao is missing."""

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from optim.builder import build
from optim.errors import MissingPackageError
from worker.checks.tiny_models import tiny_gpt2, train
from worker.footprint.count import footprint

NAMES = ["adamw-8bit", "adamw-4bit"]


@pytest.mark.parametrize(("name", "apart"), [("adamw-8bit", 0.02), ("adamw-4bit", 0.05)])
def test_it_follows_adamw(name: str, apart: float):
    model, twin = tiny_gpt2(), tiny_gpt2()
    losses = train(model, build(name, model, lr=3e-3), range(30))
    expected = train(twin, build("adamw", twin, lr=3e-3), range(30))
    assert losses[-1] == pytest.approx(expected[-1], abs=apart)


@pytest.fixture
def _no_compiler() -> Iterator[None]:
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


@pytest.mark.usefixtures("_no_compiler")
def test_the_step_is_torchaos():
    """Which would compile its own: half a minute for one matrix."""
    import torchao.optim

    layer, twin = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
    twin.load_state_dict(layer.state_dict())
    optimizer = build("adamw-8bit", layer, lr=1e-2)
    peer = torchao.optim.AdamW8bit(twin.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(3):
        gradient = torch.randn(64, 64, generator=torch.Generator().manual_seed(step))
        layer.weight.grad, twin.weight.grad = gradient, gradient.clone()
        optimizer.step()
        peer.step()
    assert torch.equal(layer.weight, twin.weight)


def test_without_torchao_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchao", None)  # as Python itself marks what cannot be imported
    with pytest.raises(MissingPackageError, match=r"adamw-8bit needs torchao, .* 'adapm-bench\[low-bit\]'"):
        build("adamw-8bit", tiny_gpt2(), lr=1e-3)
    (row,) = footprint("gpt2-tiny", NAMES[:1]).optimizers
    assert row.state_bytes is None
    assert row.unknown_because is not None and "pip install" in row.unknown_because
