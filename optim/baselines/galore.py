"""GaLore and GoLore: Adam in a subspace of the gradient that is renewed every so many steps; and Fira, which adds
what lies outside of it.

With G the m × n gradient (m < n; otherwise everything is transposed), t counted from 1:

    P = the first r left singular vectors of G        GaLore, every T steps (Zhao et al., arXiv 2403.03507); the largest
                                                      element of each is positive, in theirs as LAPACK has it
    P ~ uniform on the orthonormal m × r matrices     GoLore, every T steps (He et al., arXiv 2410.11289)
    R = P^T G                                         r × n
    N = Adam's direction for R                        its two moments are r × n
    W = W - lr (alpha P N + weight_decay W)

    Fira adds S = phi (G - P R) to the direction, phi_j = ||N_j|| / ||R_j|| for column j, and limits how fast the norm
    of that part grows to a factor of gamma a step (Chen et al., arXiv 2410.01623; alpha is on the first part alone, as
    in the authors' optimizer_torch/fira_adamw.py). What is limited is S without Adam's 1 - b^t terms, as there: they
    would make the first S 2.24 times as long, and the limit with it.

GoLore turns its first moment into the new subspace, m <- P_new^T P_old m ("momentum projection", as in the authors'
golore_torch/adamw.py, which forgets it again after that step); GaLore does not. GoLore's own experiments begin with
GaLore and end with random projections; here they are random throughout.
A fused query-key-value or gate-and-up weight is projected as one matrix, each expert as its own. Groups with
`projected` false are AdamW.

Where Fira's code differs from its paper or from AdamW, and we keep to those:

* The code takes alpha P R for P R, so that (1 - alpha) phi P R comes on top: inside the subspace a step is then up to
  1 / alpha = 4 times as long (at the first step, where N and phi R are of one size).
* It adds 1e-8 to ||R_j|| and to the last norm, for which a column of norm 1e-6 loses 1 %, and a block whose S was once
  exactly zero (an idle expert) would stay below 1.01e-8 at its next step and need some 1,850 steps to recover. Here
  such a block's next step is not limited.
* It adds eps to sqrt(v) before debiasing, which is 4.5 eps at the first step with b2 = 0.95.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..adapm.low_rank import gaussian_sketch
from ..plan.blocks import rank_of
from .per_parameter import (
    ADAM_OPTIONS,
    Group,
    PerParameterOptimizer,
    Shapes,
    State,
    adam_debias,
    adam_direction,
    as_wide,
    descend,
    matrices,
    matrix_norm,
)


class ProjectingOptimizer(PerParameterOptimizer):
    """The base of GaLore's family: matrices, or stacks of such, in groups that are `projected`; AdamW elsewhere.

    Options besides Adam's are rank_ratio, r over min(m, n); update_gap, T; scale, alpha; seed, of random projections.
    """

    group_marks: ClassVar[dict[str, Any]] = {"projected": False, "output_axis": 0}

    def is_adamw(self, group: Group) -> bool:
        """Return whether the group's gradients are not projected."""
        return not group["projected"]


class GaLore(ProjectingOptimizer):
    """Adam in the subspace of the gradient's leading singular vectors."""

    option_defaults: ClassVar[dict[str, Any]] = {
        **ADAM_OPTIONS,
        "rank_ratio": 0.5,
        "update_gap": 200,
        "scale": 0.25,
        "seed": 0,
    }
    momentum_projection = False

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of P and the moments of R."""
        *stack, rows, columns = parameter.shape
        short, long = sorted((rows, columns))
        rank = rank_of((short, long), group["rank_ratio"])
        inside = (*stack, rank, long)
        return {"projection": (*stack, short, rank), "exp_avg": inside, "exp_avg_sq": inside}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Take a step of Adam inside the subspace."""
        gradient = as_wide(matrices(gradient, group))
        if (int(state["step"]) - 1) % group["update_gap"] == 0:
            self._renew(name, gradient, state, group)
        descend(as_wide(matrices(weight, group)), self.direction(gradient, state, group), group)

    def direction(self, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return alpha P N, m × n."""
        inside = state["projection"].mT @ gradient
        return (state["projection"] @ adam_direction(inside, state, group)).mul_(group["scale"])

    def projection(self, name: str, gradient: Tensor, like: Tensor, step: int, group: Group) -> Tensor:
        """Return the new P, m × r like `like`."""
        # LAPACK refuses what is not finite; as in Adam, such a gradient spoils the state of its own matrix visibly.
        finite = gradient.isfinite().all(dim=-1, keepdim=True).all(dim=-2, keepdim=True)
        left_vectors: Tensor = torch.linalg.svd(torch.where(finite, gradient, 0.0), full_matrices=False).U
        return torch.where(finite, _signed(left_vectors[..., : like.shape[-1]]), torch.nan)

    def _renew(self, name: str, gradient: Tensor, state: State, group: Group) -> None:
        old, step = state["projection"], int(state["step"])
        new = self.projection(name, gradient, old, step, group)
        if self.momentum_projection and step > 1:
            state["exp_avg"].copy_(new.mT @ (old @ state["exp_avg"]))
        old.copy_(new)


class GoLore(GaLore):
    """Adam in a random subspace, drawn from (seed, step, parameter), so that a resumed run draws the same."""

    momentum_projection = True

    def projection(self, name: str, gradient: Tensor, like: Tensor, step: int, group: Group) -> Tensor:
        """Return Q of a Gaussian matrix, signs fixed by R's diagonal: uniform (Mezzadri, arXiv math-ph/0609050)."""
        factors = torch.linalg.qr(gaussian_sketch(group["seed"], step, name, like))
        uniform: Tensor = factors.Q * factors.R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        return uniform


class Fira(GaLore):
    """GaLore, and the rest of the gradient at the size that Adam gives the part inside the subspace."""

    growth = 1.01
    """gamma, as in the authors' optimizer_torch/fira_adamw.py."""

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return GaLore's, and the shape of the norm of the last outside part."""
        return {**super().state_shapes(parameter, group), "outside_norm": tuple(parameter.shape[:-2])}

    def direction(self, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return alpha P N + S, m × n."""
        projection = state["projection"]
        inside = projection.mT @ gradient
        adapted, debias = adam_direction(inside, state, group), adam_debias(state, group)
        outside = (gradient - projection @ inside) * norm_ratio(adapted, inside, -2)
        outside.mul_(allowed_growth(matrix_norm(outside), state["outside_norm"], self.growth, debias=debias))
        return (projection @ adapted).mul_(group["scale"]).add_(outside)


def _signed(vectors: Tensor) -> Tensor:
    """Return each column with its largest element positive. LAPACK leaves the sign to the machine, and the moments,
    which are kept in the old basis, tell one from the other at every new projection."""
    largest = vectors.gather(-2, vectors.abs().argmax(dim=-2, keepdim=True))
    return vectors * largest.sign()


def norm_ratio(dividend: Tensor, divisor: Tensor, dim: int | tuple[int, int]) -> Tensor:
    """Return ||dividend|| / ||divisor|| over columns (dim -2) or matrices (-2, -1); 0 where `divisor` is zero.

    Where the gradient is zero Adam's direction need not be, and a quotient by the least number would not be finite.
    """
    numerator, denominator = (torch.linalg.vector_norm(tensor, dim=dim, keepdim=True) for tensor in (dividend, divisor))
    return torch.where(denominator == 0.0, 0.0, numerator / denominator)


def allowed_growth(norm: Tensor, last_norm: Tensor, growth: float, *, debias: float) -> Tensor:
    """Return the factor that brings each direction down to `growth` times its last norm where it is longer, 1 × 1.

    Fira's norm-growth limiter, which APOLLO took over: a sudden rise is damped, a fall is not.

    Args:
        norm: Of each direction, 1 × 1, with Adam's 1 - b^t terms.
        last_norm: Of each, without these terms; a scalar or one a matrix, overwritten by the new one.
        growth: gamma.
        debias: The factor that these terms made.
    """
    norm = norm / debias
    last = last_norm[..., None, None]
    bound = torch.where(last > 0.0, last * growth, norm)
    factor = torch.where(norm > bound, bound / norm, torch.ones_like(norm))
    last_norm.copy_((norm * factor)[..., 0, 0])
    return factor
