"""MARS-AdamW: AdamW on gradients corrected by their change since the last step (Yuan et al., "MARS: Unleashing the
Power of Variance Reduction for Training Large Models", arXiv 2411.10438, algorithm 2, the approximate form).

    C = G + gamma b1 / (1 - b1) (G - G')        G' the gradient of the step before, 0 at the first, as the authors have
    C = C / max(1, ||C||)                       it; of each matrix, expert by expert
    W = W - lr (Adam's direction for C + weight_decay W)

Vectors are AdamW's with betas of their own at half the rate (AGI-Arena/MARS, MARS/optimizers/mars.py and
config/train_gpt2_small_mars.py). `pytorch_optimizer` has MARS too, with sqrt(v + 1e-15) + eps before debiasing for
Adam's divisor: at gradients of 1e-6 its first step is 12 % shorter.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .per_parameter import (
    ADAM_OPTIONS,
    Group,
    PerParameterOptimizer,
    Shapes,
    State,
    adam_direction,
    adam_shapes,
    descend,
    matrix_norm,
)

_VECTOR_BETAS = (0.9, 0.95)
_VECTOR_RATE = 0.5


class Mars(PerParameterOptimizer):
    """AdamW on corrected gradients: 12 bytes per parameter. Groups of `vectors` have half the rate and no correction.

    The option besides Adam's is gamma, the strength of the correction.
    """

    option_defaults: ClassVar[dict[str, Any]] = {**ADAM_OPTIONS, "betas": (0.95, 0.99), "gamma": 0.025}
    group_marks: ClassVar[dict[str, Any]] = {"vectors": False}

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of Adam's moments, and of a matrix's last gradient."""
        shapes = adam_shapes(parameter)
        return shapes if group["vectors"] else {**shapes, "last_grad": tuple(parameter.shape)}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Take a step of AdamW, of matrices with the corrected gradient."""
        if group["vectors"]:
            direction = adam_direction(gradient, state, {**group, "betas": _VECTOR_BETAS})
            descend(weight, direction * _VECTOR_RATE, group)
            return
        beta1, _ = group["betas"]
        corrected = gradient.add(gradient - state["last_grad"], alpha=group["gamma"] * beta1 / (1.0 - beta1))
        # Of a convolution the whole tensor is clipped, as the authors clip every parameter.
        norm = matrix_norm(corrected) if corrected.ndim <= 3 else torch.linalg.vector_norm(corrected)
        corrected.div_(norm.clamp_min_(1.0))
        state["last_grad"].copy_(gradient)
        descend(weight, adam_direction(corrected, state, group), group)
