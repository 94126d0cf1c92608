"""Adapters of other people's optimizers, each by itself."""

import copy

import torch
from torch import nn

from optim.baselines.adapters import DecoupledSGD
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


def test_only_what_has_a_gradient_decays():
    weight, idle_weight = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = DecoupledSGD([{"params": [weight, idle_weight], "decoupled_weight_decay": 0.5}], lr=0.1, momentum=0.9)
    weight.grad = torch.zeros(2)
    optimizer.step()
    assert weight.tolist() == torch.full((2,), 0.95).tolist()
    assert idle_weight.tolist() == [1.0, 1.0]


def test_decay_does_not_enter_the_momentum():
    weight = nn.Parameter(torch.ones(1))
    optimizer = DecoupledSGD([{"params": [weight], "decoupled_weight_decay": 0.5}], lr=0.1, momentum=0.9)
    weight.grad = torch.full((1,), 2.0)
    optimizer.step()
    assert optimizer.state[weight]["momentum_buffer"].tolist() == [2.0]
    torch.testing.assert_close(weight.detach(), torch.tensor([1.0 * 0.95 - 0.1 * 2.0]))
