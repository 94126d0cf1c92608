"""Optimizers whose weights for training are not the weights to evaluate: `Need.MODES` in the catalog.

Schedule-Free AdamW takes gradients at one point and returns another; accelerated SGD alike. Such an optimizer has
`eval()` and `train()`, which move the model between the two.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch


@runtime_checkable
class HasModes(Protocol):
    """An optimizer with two sets of weights, one of them in the model."""

    def train(self) -> object:
        """Put the weights into the model at which gradients are taken."""

    def eval(self) -> object:
        """Put the weights into the model that are the result so far."""


@contextmanager
def result_weights(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Give the model the weights of the optimizer's result within the block, and those to train on afterwards.

    The optimizer may be inside wrappers, each of which has the next as its `optimizer` (Accelerate, DeepSpeed,
    Lightning); the innermost `HasModes` has the weights, because a wrapper may have methods that reach nobody.
    """
    with_modes: HasModes | None = None
    wrapped: Any = optimizer
    while wrapped is not None:
        with_modes = wrapped if isinstance(wrapped, HasModes) else with_modes
        wrapped = getattr(wrapped, "optimizer", None)
    if with_modes is None:
        yield
        return
    with_modes.eval()
    try:
        yield
    finally:
        with_modes.train()
