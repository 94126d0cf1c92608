"""APOLLO and APOLLO-mini: the gradient itself, scaled as Adam would scale it in a random low-rank sketch of it
(Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", arXiv 2412.05270, algorithm 1).

With G the m × n gradient (m <= n; otherwise everything is transposed):

    P ~ N(0, 1 / r), r × m            drawn anew every T steps from its seed, never stored
    R = P G                           r × n
    N = Adam's direction for R        its two moments are r × n
    s_j = ||N_j|| / ||R_j||           for column j (APOLLO), or one s for all (APOLLO-mini, r = 1)
    W = W - lr (alpha s G + weight_decay W)

The norm of alpha s G grows by no more than a factor of 1.01 a step (the limiter of Fira). The update has full rank.
Groups with `projected` false are AdamW.
"""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from optim.blocks import rank_of
from optim.galore import limit_growth, norm_ratio
from optim.low_rank import gaussian_sketch
from optim.parameterwise import Group, Parameterwise, Shapes, State, adam_direction, adam_shapes, descend

GROWTH = 1.01
"""gamma, Fira's."""


class Apollo(Parameterwise):
    """Full-rank updates with Adam's scale, found in a random sketch.

    Args:
        params: Groups of named parameters; those whose `projected` is true have two dimensions.
        lr: Learning rate, of every group.
        betas: Decay rates of Adam's moments.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled.
        rank_ratio: r over min(m, n); None for APOLLO-mini: r = 1 and one scale for the whole matrix.
        update_gap: T.
        scale: alpha.
        seed: Of the projections.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        rank_ratio: float | None = 0.25,
        update_gap: int = 200,
        scale: float = 1.0,
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
        """The moments of R and the last norm; Adam's where nothing is projected."""
        if not group["projected"]:
            return adam_shapes(parameter)
        rank, long = _rank(parameter, group), max(parameter.shape)
        return {"exp_avg": (rank, long), "exp_avg_sq": (rank, long), "update_norm": ()}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """One step of Adam, or of the gradient scaled as Adam would."""
        if not group["projected"]:
            descend(weight, adam_direction(gradient, state, group), group)
            return
        rows, columns = weight.shape
        wide = gradient if rows <= columns else gradient.mT
        sketch = _projection(name, wide, state, group) @ wide
        scale = norm_ratio(adam_direction(sketch, state, group), sketch, whole=group["rank_ratio"] is None)
        direction = wide * (scale * group["scale"])
        limit_growth(direction, state["update_norm"], GROWTH)
        descend(weight, direction if rows <= columns else direction.mT, group)


def _rank(parameter: Tensor, group: Group) -> int:
    return 1 if group["rank_ratio"] is None else rank_of(tuple(parameter.shape), group["rank_ratio"])


def _projection(name: str, gradient: Tensor, state: State, group: Group) -> Tensor:
    """P of this step, r × m: a function of (seed, the step that began the interval, name)."""
    step, rank = int(state["step"]), _rank(gradient, group)
    began = step - (step - 1) % group["update_gap"]
    drawn = gaussian_sketch(group["seed"], began, name, gradient.new_empty(rank, gradient.shape[0]))
    return drawn.div_(rank**0.5)
