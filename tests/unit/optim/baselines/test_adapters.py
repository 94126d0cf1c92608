"""Adapters of other people's optimizers, each by itself."""

import copy

import torch
from torch import nn

from optim.builder import build


def test_a_copy_of_a_scheduled_optimizer_steps_its_own_weights():
    """Schedulers wrap `step` on the instance; the copy must not inherit the original's."""
    model = nn.Linear(3, 2)
    optimizer = build("lion", model, lr=0.1)
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    twin_model, twin = copy.deepcopy((model, optimizer))
    original = model.weight.detach().clone()
    for value in twin_model.parameters():
        value.grad = torch.ones_like(value)
    twin.step()
    assert torch.equal(model.weight, original)
    assert not torch.equal(twin_model.weight, original)
