"""Shampoo, grafted onto Adam (Gupta, Koren, Singer, arXiv 1802.09568; Anil et al., "Scalable Second Order Optimization
for Deep Learning", arXiv 2002.09018).

    L = b2 L + (1 - b2) G G^T             m × m, for an m × n gradient G
    R = b2 R + (1 - b2) G^T G             n × n
    A, B = L^(-1/4), R^(-1/4)             renewed every so many steps
    m = b1 m + (1 - b1) G
    U = A m B
    W = W - lr ( U ||N|| / ||U|| + weight_decay W )       N: Adam's direction, which gives the step its size

A side longer than `max_precondition_dim` keeps no statistics and the identity for its root. Each expert is a matrix of
its own, graft included. Vectors, and groups with `vectors`, are AdamW's.
`pytorch_optimizer` has Shampoo too: a plain one without grafting, and a scalable one that keeps objects in its state,
which `torch.load(weights_only=True)` refuses.
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

RIDGE = 1e-6
"""Least eigenvalue over the largest, of the size that the authors' code adds: single precision cannot tell smaller
ones from 0."""


class Shampoo(PerParameterOptimizer):
    """Steps preconditioned from both sides, of Adam's size.

    The second of the betas is of all second moments. Options besides Adam's: precondition_frequency, steps between new
    roots; max_precondition_dim, sides longer than this are left alone.
    """

    option_defaults: ClassVar[dict[str, Any]] = {
        **ADAM_OPTIONS,
        "precondition_frequency": 10,
        "max_precondition_dim": 10_000,
    }
    group_marks: ClassVar[dict[str, Any]] = {"vectors": False}

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of Adam's moments; of a matrix, of statistics and root of each side if not too long."""
        shapes = adam_shapes(parameter)
        for side, size in _sides(parameter, group):
            square = (*parameter.shape[:-2], size, size)
            shapes |= {f"statistics_{side}": square, f"root_{side}": square}
        return shapes

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Take a preconditioned step."""
        adam = adam_direction(gradient, state, group)
        sides = [side for side, _ in _sides(weight, group)]
        if not sides:
            descend(weight, adam, group)
            return
        renewed = (int(state["step"]) - 1) % group["precondition_frequency"] == 0
        for side in sides:
            squares = gradient @ gradient.mT if side == "left" else gradient.mT @ gradient
            state[f"statistics_{side}"].lerp_(squares, 1.0 - group["betas"][1])
            if renewed:
                state[f"root_{side}"].copy_(_inverse_fourth_root(state[f"statistics_{side}"]))
        # The graft gives the length: of an idle expert's momentum, which fades, no square leaves the range of floats.
        momentum = state["exp_avg"]
        largest = momentum.abs().amax(dim=(-2, -1), keepdim=True)
        direction = _precondition(momentum / torch.where(largest > 0.0, largest, 1.0), state, sides)
        length = matrix_norm(direction).clamp_min_(torch.finfo(direction.dtype).tiny)
        descend(weight, direction * (matrix_norm(adam) / length), group)


def _sides(parameter: Tensor, group: Group) -> list[tuple[str, int]]:
    """Return (name, size) of each side that has a preconditioner."""
    if parameter.ndim < 2 or group["vectors"]:
        return []
    sizes = zip(("left", "right"), parameter.shape[-2:], strict=True)
    return [(side, size) for side, size in sizes if size <= group["max_precondition_dim"]]


def _precondition(momentum: Tensor, state: State, sides: list[str]) -> Tensor:
    """Return a m B."""
    direction = momentum
    if "left" in sides:
        direction = state["root_left"] @ direction
    if "right" in sides:
        direction = direction @ state["root_right"]
    return direction


def _inverse_fourth_root(statistics: Tensor) -> Tensor:
    """Return S^(-1/4) of symmetric matrices, by their eigenvalues; the identity for 0, NaN if S is not finite."""
    finite = statistics.isfinite().all(dim=-1, keepdim=True).all(dim=-2, keepdim=True)
    values, vectors = _eigen(torch.where(finite, statistics, 0.0))  # LAPACK refuses what is not finite
    largest = values[..., -1:]
    # The scale is the graft's; taken out, so that no power of a tiny gradient leaves the range of floats.
    roots = torch.where(largest > 0.0, values / largest, 1.0).clamp_min_(RIDGE).pow_(-0.25)
    root = (vectors * roots.unsqueeze(-2)) @ vectors.mT
    return torch.where(finite, root, torch.nan)


def _eigen(statistics: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues in ascending order, and eigenvectors; in double precision if single does not converge, as with
    the many zero rows of an embedding."""
    try:
        decomposition = torch.linalg.eigh(statistics)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # public, and not exported by its types
        decomposition = torch.linalg.eigh(statistics.double())
    return decomposition.eigenvalues.to(statistics.dtype), decomposition.eigenvectors.to(statistics.dtype)
