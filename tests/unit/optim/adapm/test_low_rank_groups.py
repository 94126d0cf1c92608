"""Groups of low-rank blocks: cut by their factors, with their state side by side."""

import copy
import io

import torch
from torch import Tensor, nn

from optim.adapm import AdaPM
from optim.plan.blocks import FirstMoment
from worker.checks.tiny_models import tiny_gpt2


def moved(model: nn.Module, optimizer: AdaPM, steps: range, *, idle: str = "") -> None:
    """Steps on gradients of a few directions and noise; at the third, parameters of that name have none."""
    for step in steps:
        drawn = torch.Generator().manual_seed(step)
        for name, value in model.named_parameters():
            grad = torch.randn(value.shape, generator=drawn, dtype=torch.float64)
            value.grad = None if idle and idle in name and step == 2 else grad.to(value.dtype)
        optimizer.step()


def factors_of(model: nn.Module, optimizer: AdaPM) -> list[Tensor]:
    return [
        value
        for parameter in model.parameters()
        for key, value in optimizer.state[parameter].items()
        if "momentum" in key
    ]


def test_the_state_of_blocks_of_one_shape_is_brought_together_once_and_loads_bit_for_bit():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, 1e-3)
    moved(model, optimizer, range(1))
    storages = {value.untyped_storage().data_ptr() for value in factors_of(model, optimizer)}
    low_rank = [block for block in optimizer.plan if block.first_moment is FirstMoment.LOW_RANK]
    assert len(storages) == 2 * len({block.shape for block in low_rank}) < len(low_rank)
    moved(model, optimizer, range(1, 3))
    assert storages == {value.untyped_storage().data_ptr() for value in factors_of(model, optimizer)}
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    assert file.tell() < 1.2 * optimizer.plan.state_bytes + 60_000, "what is shared is saved once"
    file.seek(0)
    twin = copy.deepcopy(model)
    loaded = AdaPM.for_model(twin, 1e-3)
    loaded.load_state_dict(torch.load(file))
    for trained, chosen in ((model, optimizer), (twin, loaded)):
        moved(trained, chosen, range(3, 5))
    assert all(torch.equal(weight, two) for weight, two in zip(model.parameters(), twin.parameters(), strict=True))


def test_blocks_that_sit_out_a_step_keep_their_state_and_its_place():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, 1e-3)
    moved(model, optimizer, range(2))
    before = {value.data_ptr(): value.clone() for value in factors_of(model, optimizer)}
    moved(model, optimizer, range(2, 3), idle="h.1.mlp")
    after = {value.data_ptr(): value for value in factors_of(model, optimizer)}
    assert before.keys() == after.keys()
    idle = [
        value
        for name, parameter in model.named_parameters()
        if "h.1.mlp" in name
        for key, value in optimizer.state[parameter].items()
        if "momentum" in key
    ]
    pointers = [pointer for pointer, value in after.items() if torch.equal(value, before[pointer])]
    assert sorted(pointers) == sorted(value.data_ptr() for value in idle)
