"""SCALE: gradients normalised neuron by neuron, momentum in the last layer alone (Glentis, Li, Han, Hong, "A Minimalist
Optimizer Design for LLM Pretraining", arXiv 2506.16659, algorithm 1).

    m = beta m + (1 - beta) G             the last layer; elsewhere m = G
    u = m / rms over each output neuron   ("column-wise", for weights written inputs × outputs)
    W = W - lr (u + weight_decay W)

The paper divides by the norm; its code (mem_eff_pt/pt_scale/scale_optimizer.py) by the root mean square, which lr then
compares with Adam's, and so do we. Vectors are AdamW's. A head that is tied to the embedding is the last layer. Each
expert is a matrix of its own.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .per_parameter import ADAM_OPTIONS, Group, PerParameterOptimizer, Shapes, State, descend, matrices


class Scale(PerParameterOptimizer):
    """Momentum-free, normalised gradients but for the last layer; with a tied head, 4 bytes per parameter of it.

    A group's `output_axis` says which axis of its matrices, or stacks of such, counts output neurons, None that it is
    AdamW's; its `last` that it keeps momentum. The option besides AdamW's is momentum, beta of the last layer.
    """

    option_defaults: ClassVar[dict[str, Any]] = {"momentum": 0.9, **ADAM_OPTIONS}
    group_marks: ClassVar[dict[str, Any]] = {"output_axis": None, "last": False}

    def is_adamw(self, group: Group) -> bool:
        """Return whether it is a vector."""
        return group["output_axis"] is None

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shape of the last layer's momentum, nothing for any other matrix."""
        return {"exp_avg": tuple(parameter.shape)} if group["last"] else {}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Take a normalised step."""
        direction = gradient
        if group["last"]:
            direction = state["exp_avg"].lerp_(gradient, 1.0 - group["momentum"])
        direction = matrices(direction, group)
        descend(matrices(weight, group), direction / _neuron_rms(direction), group)


def _neuron_rms(matrix: Tensor) -> Tensor:
    """Return the root mean square over the inputs of each output neuron, m × 1."""
    norms: Tensor = torch.linalg.vector_norm(matrix, dim=-1, keepdim=True)
    return norms.div_(matrix.shape[-1] ** 0.5).clamp_min_(1e-8)  # no neuron without a gradient divides by zero
