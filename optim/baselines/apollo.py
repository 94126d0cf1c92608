"""APOLLO and APOLLO-mini: the gradient itself, scaled as Adam would scale it in a random low-rank sketch of it
(Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", arXiv 2412.05270, algorithm 1).

With G the m × n gradient (m < n; otherwise everything is transposed):

    P ~ N(0, 1 / r), r × m            drawn anew every T steps from its seed, never stored
    R = P G                           r × n
    N = Adam's direction for R        its two moments are r × n
    s_j = ||N_j|| / ||R_j||           for column j (APOLLO), or one s for all (APOLLO-mini, r = 1)
    W = W - lr (alpha s G + weight_decay W)

The norm of alpha s G, taken without Adam's 1 - b^t terms, grows by no more than a factor of 1.01 a step: the limiter of
Fira, where the authors have it. The update has full rank. Each expert is a matrix of its own. Groups with `projected`
false are AdamW.

Where the authors' apollo_torch/apollo.py differs from AdamW: it adds 1e-8 to norms, and eps before debiasing; what
that comes to stands in `galore.py`, whose Fira has the same.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..adapm.low_rank import gaussian_sketch
from ..plan.blocks import rank_of
from .galore import ProjectingOptimizer, allowed_growth, norm_ratio
from .per_parameter import (
    ADAM_OPTIONS,
    Batch,
    Group,
    Shapes,
    State,
    adam_debias,
    adam_directions,
    as_wide,
    matrices,
    matrix_norm,
)

GROWTH = 1.01
"""gamma, Fira's."""


class Apollo(ProjectingOptimizer):
    """Full-rank updates with Adam's scale, found in a random sketch.

    The rank_ratio None is APOLLO-mini's: r = 1 and one scale for the whole matrix.
    """

    option_defaults: ClassVar[dict[str, Any]] = {
        **ADAM_OPTIONS,
        "rank_ratio": 0.25,
        "update_gap": 200,
        "scale": 1.0,
        "seed": 0,
    }

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the moments of R and the last norm."""
        *stack, rows, columns = parameter.shape
        sketch = (*stack, _rank(parameter, group), max(rows, columns))
        return {"exp_avg": sketch, "exp_avg_sq": sketch, "update_norm": tuple(stack)}

    def update_batch(self, batch: Batch, group: Group) -> None:
        """Take a step along the gradients, each scaled as Adam would. A direction is never formed: it is G times a
        row."""
        gradients = [as_wide(matrices(gradient, group)) for gradient in batch.gradients]
        sketches = [
            _projection(name, gradient, state, group) @ gradient
            for name, gradient, state in zip(batch.names, gradients, batch.states, strict=True)
        ]
        adapted = torch.stack(adam_directions(sketches, batch.states, group))
        dims = (-2, -1) if group["rank_ratio"] is None else -2
        scales = norm_ratio(adapted, torch.stack(sketches), dims) * group["scale"]
        lengths = torch.stack([torch.linalg.vector_norm(gradient, dim=dims, keepdim=True) for gradient in gradients])
        last_norms = torch.stack([state["update_norm"] for state in batch.states])
        debias = adam_debias(batch.states[0], group)
        scales *= allowed_growth(matrix_norm(scales * lengths), last_norms, GROWTH, debias=debias)
        torch._foreach_copy_([state["update_norm"] for state in batch.states], list(last_norms))
        lr = float(group["lr"])
        weights = [as_wide(matrices(weight, group)) for weight in batch.weights]
        torch._foreach_mul_(weights, 1.0 - lr * group["weight_decay"])
        torch._foreach_addcmul_(weights, gradients, list(scales), -lr)


def _rank(parameter: Tensor, group: Group) -> int:
    return 1 if group["rank_ratio"] is None else rank_of(tuple(parameter.shape[-2:]), group["rank_ratio"])


def _projection(name: str, gradient: Tensor, state: State, group: Group) -> Tensor:
    """Return P of this step, r × m: a function of (seed, first step of the interval, name)."""
    step, rank = int(state["step"]), _rank(gradient, group)
    began = step - (step - 1) % group["update_gap"]
    *stack, rows, _ = gradient.shape
    drawn = gaussian_sketch(group["seed"], began, name, gradient.new_empty(*stack, rank, rows))
    return drawn.div_(rank**0.5)
