"""Accelerated SGD, as AdaPM's paper analyses it (arXiv 2510.09103, appendix, algorithm 3; after Jain et al.,
"Accelerating Stochastic Gradient Descent for Least Squares Regression", arXiv 1704.08227).

    U_{t-1} = (W_{t-1} + beta V_{t-1}) / (1 + beta)
    W_t     = U_{t-1} - delta g                         the short step
    V_t     = beta U_{t-1} + (1 - beta) V_{t-1} - gamma g     the long step
    g       = the gradient at U_{t-1}

Deviation: the paper prints the gradient at W_t, on both sides of its own definition, which nobody can compute; the
method it cites takes it at U_{t-1}, and so do we. So the model holds U while it trains, and `eval()` puts W there.
W needs no memory of its own: W = U + beta (U - V).
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .per_parameter import Group, PerParameterOptimizer, Shapes, State


class AcceleratedSGD(PerParameterOptimizer):
    """Accelerated SGD with one long-step sequence V as its only state.

    Args:
        params: Named parameters or groups of such.
        lr: The short step delta.
        beta: In (0, 1]; the momentum is 1 - beta, and beta = 1 is plain SGD.
        spectral_decay: a > 1, where the Hessian's eigenvalues fall as i^-a: the long step is gamma = delta
            beta^(1/a - 1) (paper, appendix, where it holds up to logarithms).
        weight_decay: Times the weights, part of the gradient: the method is one for gradients and knows no other.
    """

    option_defaults: ClassVar[dict[str, Any]] = {"beta": 0.1, "spectral_decay": 2.0, "weight_decay": 0.0}
    group_marks: ClassVar[dict[str, Any]] = {"training": True}

    def __init__(self, params: ParamsT, lr: float, **options: float) -> None:
        super().__init__(params, lr, **options)
        if not 0.0 < (beta := self.defaults["beta"]) <= 1.0:
            raise ValueError(f"Invalid beta: {beta}; it must be in (0, 1]")
        if not (spectral_decay := self.defaults["spectral_decay"]) > 1.0:
            raise ValueError(f"Invalid spectral_decay: {spectral_decay}; it must be above 1")

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shape of V."""
        return {"long_step": tuple(parameter.shape)}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Move `weight` from U_{t-1} to U_t."""
        beta, lr, long_step = group["beta"], float(group["lr"]), state["long_step"]
        if int(state["step"]) == 1:
            long_step.copy_(weight)  # V_0 = W_0, so that U_0 = W_0
        slope = gradient.add(weight, alpha=group["weight_decay"])
        long_step.lerp_(weight, beta).add_(slope, alpha=-lr * beta ** (1.0 / group["spectral_decay"] - 1.0))
        weight.sub_(slope, alpha=lr)  # W_t
        weight.lerp_(long_step, beta / (1.0 + beta))  # U_t

    def eval(self) -> None:
        """Put W, the result so far, into the model."""
        for group, weight, long_step in self._switch_weights(to_training=False):
            weight.add_(weight - long_step, alpha=group["beta"])

    def train(self) -> None:
        """Put U, where gradients are taken, back into the model."""
        for group, weight, long_step in self._switch_weights(to_training=True):
            weight.lerp_(long_step, group["beta"] / (1.0 + group["beta"]))

    @torch.no_grad()
    def _switch_weights(self, *, to_training: bool) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
        """Yield (group, weights, V) of every parameter that must be switched."""
        for group in self.param_groups:
            if group["training"] is to_training:
                continue
            group["training"] = to_training
            for parameter in group["params"]:
                if state := self.state.get(parameter):
                    weight = parameter.detach().to(state["long_step"].dtype)
                    yield group, weight, state["long_step"]
                    if weight.dtype != parameter.dtype:
                        parameter.detach().copy_(weight)
