"""An optimizer that cannot run on `meta`: it reads the values of its gradients."""

from typing import Any

import torch
from torch import nn


class NormalisedSGD(torch.optim.SGD):
    """SGD on gradients of unit length, with the length read by Python."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's own is overloaded
        """Read each gradient's norm, then step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.div_(max(float(parameter.grad.norm()), 1e-12))
        super().step(closure)


def normalised_sgd(model: nn.Module, *, lr: float) -> NormalisedSGD:
    """Return the optimizer of every parameter of the model."""
    return NormalisedSGD(model.parameters(), lr=lr)
