"""One step of one block: AdaPM's formulas (they stand at the top of `adapm.py`) on real tensors.

Everything elementwise is done by rows (`rows.py`), so that no temporary is as large as a large block; the gradient and
the weights are views of the parameter's own. Arithmetic is in float32, or in float64 for float64 parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from optim import second_moment
from optim.blocks import Block, FirstMoment
from optim.low_rank import SOLVERS, Factors, Mixture, gaussian_sketch, mixed_factors, mixture
from optim.rows import OnRows, row_chunks


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What one step of one group multiplies with, worked out once."""

    lr: float
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    clip: float | None
    momentum_free_lr_scale: float
    momentum_debias: float
    """1 - b1^t, or 1."""
    second_debias: float
    """1 - b2^t, or 1."""
    mixture: Mixture
    solver: str
    iterations: int
    fresh: bool
    seed: int
    step: int

    @classmethod
    def of(cls, group: Mapping[str, Any], step: int) -> Self:
        """The settings of that group at step t = 1, 2, …"""
        (beta1, beta2), debias = group["betas"], group["debias_moments"]
        interval = group["refresh_interval"]
        return cls(
            lr=float(group["lr"]),
            weight_decay=group["weight_decay"],
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            clip=group["clip"],
            momentum_free_lr_scale=group["momentum_free_lr_scale"],
            momentum_debias=1.0 - beta1**step if debias else 1.0,
            second_debias=1.0 - beta2**step if debias else 1.0,
            mixture=mixture(beta1, bias_correction=group["bias_correction"], debias_at=step if debias else None),
            solver=group["solver"],
            iterations=group["inner_iterations"],
            fresh=step == 1 or (interval > 0 and (step - 1) % interval == 0),
            seed=group["seed"],
            step=step,
        )


def update_block(block: Block, parameter: Tensor, state: dict[str, Tensor], settings: StepSettings) -> None:
    """Move one block of a parameter that has a gradient, and the block's state.

    Args:
        block: Which part of the parameter, and what is kept for it.
        parameter: The whole parameter; its block W (m × n) is changed in place.
        state: The parameter's state under `Block.key`, changed in place.
        settings: Of the parameter's group at the parameter's step.
    """
    assert parameter.grad is not None
    weight, gradient = block.view(parameter), block.view(parameter.grad)
    compute = torch.promote_types(parameter.dtype, torch.float32)
    momentum = _momentum(block, gradient, state, settings, compute)
    divisor = second_moment.divisor(
        block,
        state[block.key("exp_avg_sq")],
        gradient,
        beta2=settings.beta2,
        eps=settings.eps,
        debias=settings.second_debias,
    )
    for rows in row_chunks(gradient):
        piece = gradient[rows].to(compute)
        numerator, denominator = momentum(rows, piece), divisor(rows, piece)
        # The quotient takes the place of the denominator where that is as large: one temporary less.
        out = denominator if denominator.shape == numerator.shape else None
        _descend(block, weight[rows], torch.div(numerator, denominator, out=out), settings)


def _momentum(
    block: Block, gradient: Tensor, state: dict[str, Tensor], settings: StepSettings, compute: torch.dtype
) -> OnRows:
    """m by rows, with the stored momentum moved on; what it gives is not to be written to."""
    if block.first_moment is FirstMoment.NONE:
        return lambda rows, piece: piece
    if block.first_moment is FirstMoment.LOW_RANK:
        stored = Factors(state[block.key("momentum_left")], state[block.key("momentum_right")])
        return _low_rank_momentum(block, gradient.to(compute), stored, settings)
    average = state[block.key("exp_avg")]
    return lambda rows, piece: _full_momentum(average[rows], piece, settings.beta1)


def _full_momentum(stored: Tensor, gradient: Tensor, beta1: float) -> Tensor:
    average = stored.to(gradient.dtype).lerp_(gradient, 1.0 - beta1)
    if average is not stored:
        stored.copy_(average)
    return average


def _low_rank_momentum(block: Block, gradient: Tensor, stored: Factors, settings: StepSettings) -> OnRows:
    carried = Factors(*(factor.to(gradient.dtype) for factor in stored))
    found = _solve(block, gradient, carried, settings)
    # What will be carried, rounded to the state's type: the bias correction then makes up for the rounding as well.
    kept = Factors(*(new.to(old.dtype) for new, old in zip(found, stored, strict=True)))
    current = Factors(*(factor.to(gradient.dtype) for factor in kept))
    left, right = mixed_factors(carried, current, settings.mixture)
    for old, new in zip(stored, kept, strict=True):
        old.copy_(new)
    return lambda rows, piece: torch.addmm(piece, left[rows], right, beta=settings.mixture.gradient)


def _solve(block: Block, gradient: Tensor, carried: Factors, settings: StepSettings) -> Factors:
    """The new factors, found with the block turned to outputs × inputs, as the solvers want it."""
    turned = block.output_axis == 1
    start = carried.transposed() if turned else carried
    found = SOLVERS[settings.solver](
        gradient.mT if turned else gradient,
        start,
        beta1=settings.beta1,
        iterations=settings.iterations,
        fresh=settings.fresh,
        sketch=lambda: gaussian_sketch(settings.seed, settings.step, block.name, start.right),
    )
    return found.transposed() if turned else found


def _descend(block: Block, weight: Tensor, update: Tensor, settings: StepSettings) -> None:
    """W <- W - lr (clip(u) + weight_decay W), rounded once to the weight's type; `update` is overwritten."""
    lr = settings.lr
    if block.first_moment is FirstMoment.FULL:
        if settings.momentum_debias != 1.0:
            update.div_(settings.momentum_debias)
    elif settings.clip is not None:
        update.clamp_(-settings.clip, settings.clip)
    if block.first_moment is FirstMoment.NONE:
        lr *= settings.momentum_free_lr_scale
    exact = weight.to(update.dtype)
    if block.decays and settings.weight_decay != 0.0:
        exact.mul_(1.0 - lr * settings.weight_decay)
    exact.add_(update, alpha=-lr)
    if exact is not weight:
        weight.copy_(exact)
