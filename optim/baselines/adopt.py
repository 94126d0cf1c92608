"""ADOPT: Adam whose gradients are divided by the second moment of the step before, then averaged (Taniguchi et al.,
"ADOPT: Modified Adam Can Converge with Any b2 with the Optimal Rate", arXiv 2411.02853, algorithm 2).

    v = G²                                             at the first gradient, which moves nothing
    m = b1 m + (1 - b1) clip(G / max(sqrt(v), eps), c)       c = t^(1/4), with t from 1 at the second gradient
    W = W - lr (m + weight_decay W)
    v = b2 v + (1 - b2) G²

`pytorch_optimizer` has ADOPT too, with state of the weights' type: in bfloat16 a decay of 0.9999 rounds to none. Its
groups share one counter, so that a weight whose first gradient comes late is divided by eps.
"""

from typing import Any, ClassVar

from torch import Tensor

from .per_parameter import Group, PerParameterOptimizer, Shapes, State, adam_shapes, descend


class Adopt(PerParameterOptimizer):
    """Momentum of normalised gradients: 8 bytes per parameter. The first gradient is only looked at."""

    option_defaults: ClassVar[dict[str, Any]] = {"betas": (0.9, 0.9999), "eps": 1e-6, "weight_decay": 0.1}

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of m and v."""
        return adam_shapes(parameter)

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Take a step along the momentum, from the second gradient on."""
        (beta1, beta2), step, square = group["betas"], int(state["step"]), state["exp_avg_sq"]
        if step == 1:
            square.addcmul_(gradient, gradient)
            return
        bound = (step - 1) ** 0.25
        normalised = (gradient / square.sqrt().clamp_min_(group["eps"])).clamp_(-bound, bound)
        descend(weight, state["exp_avg"].lerp_(normalised, 1.0 - beta1), group)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
