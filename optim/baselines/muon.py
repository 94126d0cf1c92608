"""Muon and NorMuon: steps along the polar factor of a momentum (Jordan et al., kellerjordan.github.io/posts/muon; Liu
et al., "Muon is Scalable for LLM Training", arXiv 2502.16982).

    B = mu B + (1 - mu) G
    U = polar factor of (1 - mu) G + mu B        Nesterov's; of B without
    W = W - lr (s U + weight_decay W)            s = 0.2 sqrt(max(out, in)): the size of AdamW's steps (Liu et al.)
                                                 s = sqrt(max(1, out / in)): Jordan's

NorMuon (Li et al., "NorMuon: Making Muon more efficient and scalable", arXiv 2510.05491, algorithm 1) takes, for U,

    v = b2 v + (1 - b2) mean of U² over inputs          one for each output neuron
    s U / (sqrt(v) + eps)                               s such that the root mean square of that is 0.2

The polar factor comes from five steps of Newton and Schulz in bfloat16, whose coefficients leave singular values
between 0.7 and 1.2. As torch's Muon, it rounds each of the two sums of an iteration once, where Jordan's code rounds
every product: after twelve steps that sets weights 2 % of their way apart, or 8 % if they are bfloat16.
Outputs and inputs are the map's, and each expert is a matrix of its own. A fused query-key-value or gate-and-up weight
is one matrix. Groups with `orthogonal` false are AdamW.

torch's own Muon refuses stacks of experts, and takes for out / in the shape as it is stored, which for GPT-2's `Conv1D`
is in × out: Jordan's s of `c_fc` (d → 4 d) would be half of what it is, that of `c_proj` twice.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from .per_parameter import ADAM_OPTIONS, Batch, Group, PerParameterOptimizer, Shapes, matrices, matrix_norm

_QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of X, X X^T X and (X X^T)^2 X, from Jordan's post: the steepest at zero."""
_SMALLEST_NORM = 1e-7


class Muon(PerParameterOptimizer):
    """Orthogonalised momentum for the matrices, or stacks of such, of `orthogonal` groups; AdamW for all else.

    Options besides Adam's: momentum, mu; nesterov, whether the polar factor is that of Nesterov's momentum; the
    iterations newton_schulz_steps; adjust_lr, which s, "match_rms_adamw" or "original".
    """

    option_defaults: ClassVar[dict[str, Any]] = {
        "momentum": 0.95,
        "nesterov": True,
        "newton_schulz_steps": 5,
        "adjust_lr": "match_rms_adamw",
        **ADAM_OPTIONS,
    }
    group_marks: ClassVar[dict[str, Any]] = {"orthogonal": False, "output_axis": 0}

    def is_adamw(self, group: Group) -> bool:
        """Return whether the group's steps are not orthogonalised."""
        return not group["orthogonal"]

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shape of B."""
        return {"momentum_buffer": tuple(parameter.shape)}

    def update_batch(self, batch: Batch, group: Group) -> None:
        """Take a step of like matrices, whose polar factors are computed together."""
        momenta = [state["momentum_buffer"] for state in batch.states]
        torch._foreach_lerp_(momenta, batch.gradients, 1.0 - group["momentum"])
        directions = torch._foreach_lerp(batch.gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        polar = polar_factors(
            torch.stack([matrices(direction.bfloat16(), group) for direction in directions]),
            group["newton_schulz_steps"],
        )
        steps = self.scaled(polar.to(momenta[0].dtype), batch, group)
        lr = float(group["lr"])
        torch._foreach_mul_(batch.weights, 1.0 - lr * group["weight_decay"])
        torch._foreach_add_(batch.weights, list(matrices(steps, group)), alpha=-lr)

    def scaled(self, polar: Tensor, batch: Batch, group: Group) -> Tensor:
        """Return s U of each matrix, stacked like U; U is overwritten."""
        outputs, inputs = polar.shape[-2:]
        is_jordans = group["adjust_lr"] == "original"
        return polar.mul_(max(1.0, outputs / inputs) ** 0.5 if is_jordans else 0.2 * max(outputs, inputs) ** 0.5)


class NorMuon(Muon):
    """Muon whose polar factor has rows of one size, which a second moment of each output neuron gives it.

    Options as Muon's without adjust_lr; the second of the betas is of all second moments.
    """

    option_defaults: ClassVar[dict[str, Any]] = {
        option: default for option, default in Muon.option_defaults.items() if option != "adjust_lr"
    }

    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of B, and of v of each output neuron."""
        *stack, outputs, _ = matrices(parameter, group).shape
        return {**super().state_shapes(parameter, group), "exp_avg_sq": (*stack, outputs, 1)}

    def scaled(self, polar: Tensor, batch: Batch, group: Group) -> Tensor:
        """Return s U / sqrt(v) of each matrix, stacked like U; U is overwritten."""
        squares = [state["exp_avg_sq"] for state in batch.states]
        torch._foreach_lerp_(squares, list(polar.square().mean(dim=-1, keepdim=True)), 1.0 - group["betas"][1])
        polar.div_(torch.stack(squares).sqrt_().add_(group["eps"]))
        outputs, inputs = polar.shape[-2:]
        return polar.mul_(0.2 * (outputs * inputs) ** 0.5 / matrix_norm(polar).clamp_min_(_SMALLEST_NORM))


def polar_factors(matrix: Tensor, iterations: int) -> Tensor:
    """Return U V^T of each m × n matrix U S V^T, approximately, in bfloat16; zero for zero."""
    a, b, c = _QUINTIC
    tall = matrix.shape[-2] > matrix.shape[-1]
    wide = (matrix.mT if tall else matrix).bfloat16()
    polar = (wide / matrix_norm(wide).clamp_min_(_SMALLEST_NORM)).reshape(-1, *wide.shape[-2:])
    for _ in range(iterations):
        gram = polar @ polar.mT
        polar = torch.baddbmm(polar, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), polar, beta=a)
    polar = polar.view(wide.shape)
    return polar.mT if tall else polar
