"""The second moment of a block: Adam's (one value a parameter) or Adam-mini's (one value a row, neuron or head).

    v <- b2 v + (1 - b2) mean(G * G)        the mean over everything that shares one value

Adam-mini's second-version partition (Zhang et al., "Adam-mini: Use Fewer Learning Rates To Gain More", arXiv
2406.16793) follows the output neurons: a row of an embedding, an output neuron of a projection, or all neurons of one
head. Stored as a vector of one value a group; `Block.output_axis` says which axis of the block those groups divide.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from optim.blocks import Block, SecondMoment
from optim.rows import OnRows, Rows, Scratch, row_chunks


def divisors(
    blocks: Sequence[Block],
    stored: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    beta2: float,
    eps: float,
    debias: float,
    scratch: Scratch,
) -> OnRows:
    """sqrt(v / debias) + eps by rows, with v moved on by the gradient, for blocks whose second moment is of one kind.

    Args:
        blocks: The blocks, m × n.
        stored: v of each, changed in place: m × n, or one value a group.
        gradients: G of each, m × n.
        beta2: b2.
        eps: Adam's epsilon.
        debias: 1 - b2^t, or 1 for none.
        scratch: Where the divisor of a lone piece may lie.

    Returns:
        A function of some rows and the gradients there, to be called once for each row: a tensor a block that
        broadcasts over those rows, and that is new or scratch where it is as large as the rows.
    """
    if blocks[0].second_moment is SecondMoment.ELEMENT:
        return lambda rows, pieces: _elements([moment[rows] for moment in stored], pieces, beta2, eps, debias, scratch)
    means = [_mean_squares(block, gradient) for block, gradient in zip(blocks, gradients, strict=True)]
    roots = _roots(_averaged(stored, means, beta2), eps, debias, None)
    spread = [_spread(block, root) for block, root in zip(blocks, roots, strict=True)]
    return lambda rows, pieces: [_at(block, root, rows) for block, root in zip(blocks, spread, strict=True)]


def _elements(
    stored: list[Tensor], gradients: list[Tensor], beta2: float, eps: float, debias: float, scratch: Scratch
) -> list[Tensor]:
    """The divisors of pieces that keep one value an element: v <- b2 v + (1 - b2) G * G in place."""
    moments = [old.to(gradient.dtype) for old, gradient in zip(stored, gradients, strict=True)]
    torch._foreach_mul_(moments, beta2)
    torch._foreach_addcmul_(moments, gradients, gradients, value=1.0 - beta2)
    _keep(stored, moments)
    return _roots(moments, eps, debias, scratch)


def _averaged(stored: Sequence[Tensor], mean_squares: list[Tensor], beta2: float) -> list[Tensor]:
    """v <- b2 v + (1 - b2) mean(G * G) in place; given back in the type of the means."""
    moments = [old.to(mean.dtype) for old, mean in zip(stored, mean_squares, strict=True)]
    torch._foreach_lerp_(moments, mean_squares, 1.0 - beta2)
    _keep(stored, moments)
    return moments


def _keep(stored: Sequence[Tensor], moments: list[Tensor]) -> None:
    """Round what was worked out in a wider type to the state's; a moment that is the state itself is there already."""
    for old, new in zip(stored, moments, strict=True):
        if new is not old:
            old.copy_(new)


def _roots(moments: list[Tensor], eps: float, debias: float, scratch: Scratch | None) -> list[Tensor]:
    if scratch is not None and len(moments) == 1:
        roots = [torch.sqrt(moments[0], out=scratch.like(moments[0]))]
    else:
        roots = list(torch._foreach_sqrt(moments))
    if debias != 1.0:
        torch._foreach_mul_(roots, debias**-0.5)
    torch._foreach_add_(roots, eps)
    return roots


def _spread(block: Block, neurons: Tensor) -> Tensor:
    """One value for each output neuron, from one for each group of them, along the block's output axis."""
    if block.head_size > 1:
        neurons = neurons.repeat_interleave(block.head_size)
    return neurons if block.output_axis == 1 else neurons.unsqueeze(1)


def _at(block: Block, spread: Tensor, rows: Rows) -> Tensor:
    return spread if block.output_axis == 1 else spread[rows]


def _mean_squares(block: Block, gradient: Tensor) -> Tensor:
    """Mean of the squared gradient over each group: shape (groups,)."""
    sums = _square_sums(gradient, over=1 - block.output_axis)
    if block.head_size > 1:
        sums = sums.view(-1, block.head_size).mean(dim=1)
    return sums / gradient.shape[1 - block.output_axis]


def _square_sums(gradient: Tensor, *, over: int) -> Tensor:
    """Sums of squares over one axis of m × n.

    torch's norm is as fast as reading along a row, and ten times slower than this loop down a column.
    """
    compute = torch.promote_types(gradient.dtype, torch.float32)
    if over == 1:
        norms: Tensor = torch.linalg.vector_norm(gradient, dim=1, dtype=compute)
        return norms.square_()
    total = gradient.new_zeros(gradient.shape[1], dtype=compute)
    for rows in row_chunks(gradient):
        total.add_(gradient[rows].to(compute).square().sum(dim=0))
    return total
