"""Outlines without transformers: what optimizers see of them is what they see of the model that is trained."""

import pytest
import torch
from torch import nn

from optim.builder import build
from optim.catalog import CATALOG
from optim.plan.placement import plan_blocks
from optim.state import allocated_state_bytes
from worker.catalog import presets
from worker.footprint.outlines import outline
from worker.models import outline_model


@pytest.mark.parametrize("name", presets.names())
def test_it_has_the_modules_parameters_and_blocks_of_the_model(name: str):
    drawn, trained = outline(name), outline_model(name)
    assert parameters(drawn) == parameters(trained)
    assert [name for name, _ in drawn.named_parameters()] == [name for name, _ in trained.named_parameters()]
    assert classes(drawn).items() <= classes(trained).items()
    left_out = set(classes(trained)) - set(classes(drawn))
    assert not [name for name, _ in trained.named_parameters() if name.rpartition(".")[0] in left_out]
    assert list(plan_blocks(drawn)) == list(plan_blocks(trained))


def parameters(model: nn.Module) -> list[tuple[str, torch.Size, torch.dtype, torch.device, bool]]:
    """All of them, tied ones by each of their names."""
    return [
        (name, each.shape, each.dtype, each.device, each.requires_grad)
        for name, each in model.named_parameters(remove_duplicate=False)
    ]


def classes(model: nn.Module) -> dict[str, str]:
    """Module name → name of its class."""
    return {name: type(module).__name__ for name, module in model.named_modules()}


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny", "mixtral-tiny"])
def test_two_of_each_shape_tell_the_state_of_all(model: str):
    """Of every optimizer in the catalog, in all that is counted."""
    drawn = outline(model)
    for entry in CATALOG:
        whole, by_shape = (
            allocated_state_bytes(build(entry.name, drawn, lr=0.1), drawn, by_shape=each) for each in (False, True)
        )
        assert by_shape == whole, entry.name
