"""AdaPM on compiled models: the same blocks, and the same steps up to the compiler's rounding."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM, AdaPMMini
from optim.builder import build
from worker.checks.tiny_models import loss_of, tiny_gpt2


def steps(model: nn.Module, optimizer: AdaPM, first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_a_compiled_model_is_planned_and_trained_as_the_plain_one_and_its_state_fits_it(cls: type[AdaPM]):
    plain, inner = tiny_gpt2(), tiny_gpt2()
    compiled = torch.compile(inner, backend="aot_eager")
    assert isinstance(compiled, nn.Module)
    expected, optimizer = cls.for_model(plain, lr=3e-3), cls.for_model(compiled, lr=3e-3)
    assert optimizer.plan == expected.plan
    assert steps(compiled, optimizer, 0, 3) == pytest.approx(steps(plain, expected, 0, 3), rel=1e-4)

    resumed = cls.for_model(inner, lr=3e-3)
    resumed.load_state_dict(optimizer.state_dict())
    assert steps(inner, resumed, 3, 5) == pytest.approx(steps(plain, expected, 3, 5), rel=1e-4)


@pytest.mark.parametrize("name", ["adapm", "adam-mini", "galore", "muon", "shampoo"])
def test_a_step_may_be_compiled_from_outside_with_the_same_numbers(name: str):
    """As with torch's own optimizers: what cannot be traced is run as it is, here the whole update."""
    models = tiny_gpt2(), tiny_gpt2()
    plain, other = (build(name, model, lr=3e-3) for model in models)
    compiled = torch.compile(lambda: other.step(), backend="aot_eager")
    for step in range(3):
        moves: tuple[Callable[[], object], ...] = (plain.step, compiled)
        for model, move in zip(models, moves, strict=True):
            model.zero_grad()
            loss_of(model, step).backward()
            move()
    for weight, two in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(weight, two)
