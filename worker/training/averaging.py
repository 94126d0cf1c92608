"""Averaged weights: what `ema_decay` validates instead of the last ones.

An average over steps does for the loss what a decay of the learning rate does (Izmailov et al., arXiv 1803.05407;
Morales-Brotons et al., arXiv 2411.18704), so that a candidate may train at a constant rate.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """The exponential moving average of a model's trained weights, corrected for its start.

    After t steps it is (1 - d) / (1 - d^t) times the sum of d^(t - i) w_i over the steps i = 1 … t: the weights before
    the first step have no part in it.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """`decay`: d, between 0 and 1. Takes as much memory as the trained weights, of their type, from now on."""
        self._decay, self._steps = decay, 0
        self._trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._means = {name: parameter.detach().clone() for name, parameter in self._trained.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights of one more step into the average."""
        self._steps += 1
        share = (1 - self._decay) / (1 - self._decay**self._steps)
        torch._foreach_lerp_(list(self._means.values()), list(self._trained.values()), share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averages for its weights within the block; afterwards the trained ones, to the bit."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        """Exchange one tensor at a time: a second copy of the model never exists."""
        for trained, mean in zip(self._trained.values(), self._means.values(), strict=True):
            trained_copy = trained.detach().clone()
            trained.copy_(mean)
            mean.copy_(trained_copy)

    def state(self) -> dict[str, Tensor]:
        """Return the averages by the names of their parameters; how many steps are in them is the training's."""
        return dict(self._means)

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go on from what `state` gave after so many steps."""
        self._steps = steps
        for name, mean in self._means.items():
            mean.copy_(state[name])
