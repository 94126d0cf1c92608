"""The weights that are the result so far, within a block, whatever happens in it."""

import pytest
import torch
from torch import nn

from optim.builder import build
from optim.train_eval_weights import HasModes, result_weights


def trained() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    optimizer = build("asgd", model, lr=0.1, options={"beta": 0.5})
    for _ in range(3):
        for value in model.parameters():
            value.grad = torch.ones_like(value)
        optimizer.step()
    return model, optimizer


def _look_and_fail(model: nn.Linear, optimizer: torch.optim.Optimizer, original: torch.Tensor) -> None:
    with result_weights(optimizer):
        assert not torch.allclose(model.weight, original)
        raise KeyError


def test_the_weights_to_train_come_back_after_an_exception():
    model, optimizer = trained()
    original = model.weight.detach().clone()
    with pytest.raises(KeyError):
        _look_and_fail(model, optimizer, original)
    torch.testing.assert_close(model.weight.detach(), original)


def test_asking_twice_for_one_mode_changes_nothing():
    model, optimizer = trained()
    assert isinstance(optimizer, HasModes)
    optimizer.eval()
    expected = model.weight.detach().clone()
    optimizer.eval()
    assert torch.equal(model.weight, expected)


class Wrapper(torch.optim.Optimizer):
    """A wrapper like DeepSpeed's: no `train` or `eval` of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


class SilentWrapper(Wrapper):
    """A wrapper like Accelerate's, whose `train` and `eval` reach the wrapped optimizer if it has them, and do nothing
    otherwise."""

    def train(self) -> None:
        getattr(self.optimizer, "train", lambda: None)()

    def eval(self) -> None:
        getattr(self.optimizer, "eval", lambda: None)()


@pytest.mark.parametrize("wrap", [Wrapper, SilentWrapper, lambda inner: SilentWrapper(Wrapper(inner))])
def test_an_optimizer_inside_wrappers_shows_the_same_weights(wrap):
    model, optimizer = trained()
    with result_weights(optimizer):
        wanted = model.weight.detach().clone()
    original = model.weight.detach().clone()
    with result_weights(wrap(optimizer)):
        assert not torch.allclose(model.weight, original)
        torch.testing.assert_close(model.weight.detach(), wanted)


def test_an_optimizer_with_one_set_of_weights_is_left_alone():
    model = nn.Linear(3, 2)
    original = model.weight.detach().clone()
    with result_weights(build("adamw", model, lr=0.1)):
        assert torch.equal(model.weight, original)
