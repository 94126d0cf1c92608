"""AdEMAMix: AdamW with a slow momentum beside the fast one (Pagliardini, Ablin, Grangier, "The AdEMAMix Optimizer:
Better, Faster, Older", arXiv 2409.03137, algorithm 1).

    m = b1 m + (1 - b1) G                 as Adam's
    s = b3 s + (1 - b3) G                 slow, and never divided by 1 - b3^t
    v = b2 v + (1 - b2) G²
    W = W - lr ((m / (1 - b1^t) + alpha s) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay W)

Over the first T steps, if there is a T, alpha grows linearly from 0, and b3's half-life linearly from b1's (section 3).

`pytorch_optimizer` has AdEMAMix too, with state of the weights' type: in bfloat16 a decay of 0.9999 rounds to none. Its
groups share one counter, so that a weight whose first gradient comes late has no bias correction.
"""

from math import exp, log
from typing import Any, ClassVar

from torch import Tensor

from .per_parameter import Group, PerParameterOptimizer, Shapes, State, adam_shapes, descend


class AdEMAMix(PerParameterOptimizer):
    """AdamW with two momenta: 12 bytes per parameter.

    Options besides Adam's, whose betas have a third one, b3: alpha, the weight of the slow momentum; slow_warmup, T.
    """

    option_defaults: ClassVar[dict[str, Any]] = {
        "betas": (0.9, 0.999, 0.9999),
        "eps": 1e-8,
        "weight_decay": 0.1,
        "alpha": 2.0,
        "slow_warmup": None,
    }

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of m, v and s."""
        return {**adam_shapes(parameter), "exp_avg_slow": tuple(parameter.shape)}

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Take a step along both momenta."""
        (beta1, beta2, beta3), step = group["betas"], int(state["step"])
        share = 1.0 if group["slow_warmup"] is None else min(1.0, step / group["slow_warmup"])
        fast = state["exp_avg"].lerp_(gradient, 1.0 - beta1)
        slow = state["exp_avg_slow"].lerp_(gradient, 1.0 - _slow_rate(beta1, beta3, share))
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        divisor = (square / (1.0 - beta2**step)).sqrt_().add_(group["eps"])
        direction = (fast / (1.0 - beta1**step)).add_(slow, alpha=share * group["alpha"]).div_(divisor)
        descend(weight, direction, group)


def _slow_rate(beta1: float, beta3: float, share: float) -> float:
    """Return the rate whose half-life lies that share of the way from b1's to b3's: half-lives go as 1 / ln b."""
    half_life = sum(part / log(beta) for part, beta in ((1.0 - share, beta1), (share, beta3)) if beta > 0.0)
    return exp(1.0 / half_life) if half_life else 0.0
