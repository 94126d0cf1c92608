"""GaLore and GoLore: Adam in a subspace of the gradient that is renewed every so many steps; and Fira, which adds
what lies outside of it.

With G the m × n gradient (m <= n; otherwise everything is transposed), t counted from 1:

    P = the first r left singular vectors of G        GaLore, every T steps (Zhao et al., arXiv 2403.03507)
    P ~ uniform on the orthonormal m × r matrices     GoLore, every T steps (He et al., arXiv 2410.11289)
    R = P^T G                                         r × n
    N = Adam's direction for R                        its two moments are r × n
    W = W - lr (alpha P N + weight_decay W)

    Fira adds phi (G - P R) to the direction, phi_j = ||N_j|| / ||R_j|| for column j, and limits how fast the norm of
    that part grows to a factor of gamma a step (Chen et al., arXiv 2410.01623; alpha is on the first part alone, as in
    the authors' optimizer_torch/fira_adamw.py, whose projector also takes alpha P R for P R: not followed here).

GoLore turns its first moment into the new subspace, m <- P_new^T P_old m ("momentum projection", as in the authors'
golore_torch/adamw.py, which forgets it again after that step); GaLore does not. GoLore's own experiments begin with
GaLore and end with random projections; here they are random throughout.
A fused query-key-value weight is projected as one matrix. Groups with `projected` false are AdamW.
"""

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from optim.blocks import rank_of
from optim.low_rank import gaussian_sketch
from optim.parameterwise import Group, Parameterwise, Shapes, State, adam_direction, adam_shapes, descend


class GaLore(Parameterwise):
    """Adam in the subspace of the gradient's leading singular vectors.

    Args:
        params: Groups of named parameters; those whose `projected` is true have two dimensions.
        lr: Learning rate, of every group.
        betas: Decay rates of Adam's moments.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled.
        rank_ratio: r over min(m, n).
        update_gap: T.
        scale: alpha.
        seed: Of random projections.
    """

    momentum_projection = False

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        rank_ratio: float = 0.5,
        update_gap: int = 200,
        scale: float = 0.25,
        seed: int = 0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "rank_ratio": rank_ratio,
            "update_gap": update_gap,
            "scale": scale,
            "seed": seed,
            "projected": False,
        }
        super().__init__(params, defaults)

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """P and the moments of R; Adam's where nothing is projected."""
        if not group["projected"]:
            return adam_shapes(parameter)
        short, long = sorted(parameter.shape)
        rank = rank_of((short, long), group["rank_ratio"])
        return {"projection": (short, rank), "exp_avg": (rank, long), "exp_avg_sq": (rank, long)}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """One step of Adam, inside the subspace where the group is projected."""
        if not group["projected"]:
            descend(weight, adam_direction(gradient, state, group), group)
            return
        rows, columns = weight.shape
        wide = gradient if rows <= columns else gradient.mT
        if (int(state["step"]) - 1) % group["update_gap"] == 0:
            self._renew(name, wide, state, group)
        direction = self.direction(wide, state, group)
        descend(weight, direction if rows <= columns else direction.mT, group)

    def direction(self, gradient: Tensor, state: State, group: Group) -> Tensor:
        """alpha P N, m × n."""
        inside = state["projection"].mT @ gradient
        return (state["projection"] @ adam_direction(inside, state, group)).mul_(group["scale"])

    def projection(self, name: str, gradient: Tensor, like: Tensor, step: int, group: Group) -> Tensor:
        """The new P, m × r like `like`."""
        if not bool(gradient.isfinite().all()):
            return torch.full_like(
                like, torch.nan
            )  # LAPACK refuses such input; as in Adam, the state is spoilt visibly
        left: Tensor = torch.linalg.svd(gradient, full_matrices=False).U
        return left[:, : like.shape[1]]

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
        """Q of a Gaussian matrix, signs fixed by R's diagonal: uniform (Mezzadri, arXiv math-ph/0609050)."""
        factors = torch.linalg.qr(gaussian_sketch(group["seed"], step, name, like))
        uniform: Tensor = factors.Q * factors.R.diagonal().sign()
        return uniform


class Fira(GaLore):
    """GaLore, and the rest of the gradient at the size that Adam gives the part inside the subspace."""

    growth = 1.01
    """gamma, as in the authors' optimizer_torch/fira_adamw.py."""

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """GaLore's, and the norm of the last outside part."""
        shapes = super().state_shapes(parameter, group)
        return {**shapes, "outside_norm": ()} if group["projected"] else shapes

    def direction(self, gradient: Tensor, state: State, group: Group) -> Tensor:
        """alpha P N + phi (G - P R), m × n."""
        projection = state["projection"]
        inside = projection.mT @ gradient
        adapted = adam_direction(inside, state, group)
        outside = (gradient - projection @ inside) * norm_ratio(adapted, inside)
        limit_growth(outside, state["outside_norm"], self.growth)
        return (projection @ adapted).mul_(group["scale"]).add_(outside)


def norm_ratio(of: Tensor, to: Tensor, *, whole: bool = False) -> Tensor:
    """||of_j|| / ||to_j|| for each column j, 1 × n, or of the whole matrices, a scalar; 0 where `to` is zero."""
    dim = None if whole else 0
    numerator: Tensor = torch.linalg.vector_norm(of, dim=dim, keepdim=not whole)
    denominator: Tensor = torch.linalg.vector_norm(to, dim=dim, keepdim=not whole)
    # Where the gradient is zero Adam's direction need not be, and a quotient by the least number would not be finite.
    return torch.where(denominator == 0.0, 0.0, numerator / denominator)


def limit_growth(direction: Tensor, last_norm: Tensor, growth: float) -> None:
    """Scale `direction` down to `growth` times the last norm where it is longer; keep its norm in `last_norm`.

    Fira's norm-growth limiter, which APOLLO took over: a sudden rise is damped, a fall is not.
    """
    norm = torch.linalg.vector_norm(direction)
    bound = torch.where(last_norm > 0.0, last_norm * growth, norm)
    factor = torch.where(norm > bound, bound / norm, torch.ones_like(norm))
    direction.mul_(factor)
    last_norm.copy_(norm * factor)
