"""MARS-AdamW: AdamW on gradients corrected by their change since the last step (Yuan et al., "MARS: Unleashing the
Power of Variance Reduction for Training Large Models", arXiv 2411.10438, algorithm 2, the approximate form).

    C = G + gamma b1 / (1 - b1) (G - G')        G' the gradient of the step before, 0 at the first, as the authors have
    C = C / max(1, ||C||)                       it; of each matrix, expert by expert
    W = W - lr (Adam's direction for C + weight_decay W)

Vectors are AdamW's with betas of their own at half the rate (AGI-Arena/MARS, MARS/optimizers/mars.py and
config/train_gpt2_small_mars.py). `pytorch_optimizer` has MARS too, with sqrt(v + 1e-15) + eps before debiasing for
Adam's divisor: at gradients of 1e-6 its first step is 12 % shorter.
"""

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from optim.baselines.per_parameter import (
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
    """AdamW on corrected gradients: 12 bytes a parameter.

    Args:
        params: Groups of named parameters; those whose `vectors` is true are AdamW's.
        lr: Learning rate; of vectors half.
        betas: b1 and b2.
        gamma: Strength of the correction.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        betas: tuple[float, float] = (0.95, 0.99),
        gamma: float = 0.025,
        eps: float = 1e-8,
        weight_decay: float = 0.1,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "gamma": gamma, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "vectors": False})

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Adam's moments, and the last gradient of matrices."""
        shapes = adam_shapes(parameter)
        return shapes if group["vectors"] else {**shapes, "last_grad": tuple(parameter.shape)}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """One step of AdamW, of matrices with the corrected gradient."""
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
