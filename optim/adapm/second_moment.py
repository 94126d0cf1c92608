"""The second moment of a block: Adam's (one value a parameter) or Adam-mini's (one value a row, neuron or head).

    v <- b2 v + (1 - b2) mean(G * G)        the mean over everything that shares one value

Adam-mini's second-version partition (Zhang et al., "Adam-mini: Use Fewer Learning Rates To Gain More", arXiv
2406.16793) follows the output neurons: a row of an embedding, an output neuron of a projection, or all neurons of one
head. Stored as a vector of one value a group; `Block.output_axis` says which axis of the block those groups divide.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from optim.adapm.compiled import column_square_sums
from optim.adapm.devices import Rows, row_chunks
from optim.plan.blocks import Block, SecondMoment

Quotients = Callable[[Rows, list[Tensor], list[Tensor]], list[Tensor]]
"""From some rows, the gradients of a batch of blocks there and their momenta, to m / (sqrt(v) + eps)."""


def quotients(
    blocks: Sequence[Block],
    stored: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    beta2: float,
    eps: float,
    debias: float,
) -> Quotients:
    """m / (sqrt(v / debias) + eps) by rows, with v moved on, for blocks whose second moment is of one kind.

    Args:
        blocks: The blocks, m × n.
        stored: v of each, changed in place: m × n, or one value a group.
        gradients: G of each, m × n.
        beta2: b2.
        eps: Adam's epsilon.
        debias: 1 - b2^t, or 1 for none.

    Returns:
        A function of some rows, and of the gradients and the momenta m there, to be called once for each row. It gives
        a tensor a block that may be written to.
    """
    if blocks[0].second_moment is SecondMoment.ELEMENT:
        return lambda rows, pieces, numerators: _element_quotients(
            [moment[rows] for moment in stored], pieces, numerators, beta2, eps, debias
        )
    spread = divisors(blocks, stored, gradients, beta2=beta2, eps=eps, debias=debias)
    return lambda rows, pieces, numerators: [
        numerator / _divisor_rows(block, root, rows)
        for block, root, numerator in zip(blocks, spread, numerators, strict=True)
    ]


def divisors(
    blocks: Sequence[Block],
    stored: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    beta2: float,
    eps: float,
    debias: float,
    compiles: bool = False,
) -> list[Tensor]:
    """sqrt(v / debias) + eps, m × 1 or 1 × n, with v moved on, of blocks that share v.

    `compiles` sums squares by compiled code; the other arguments are those of `quotients`.
    """
    sums = column_square_sums if compiles else _column_square_sums
    means = [_mean_squares(block, gradient, sums) for block, gradient in zip(blocks, gradients, strict=True)]
    moments = _update_moments(stored, means, beta2)
    return [_spread(block, _root(moment, eps, debias)) for block, moment in zip(blocks, moments, strict=True)]


def _element_quotients(
    stored: list[Tensor],
    gradients: list[Tensor],
    numerators: list[Tensor],
    beta2: float,
    eps: float,
    debias: float,
) -> list[Tensor]:
    """The quotients of pieces that keep one value an element: v <- b2 v + (1 - b2) G * G in place."""
    moments = [old.to(gradient.dtype) for old, gradient in zip(stored, gradients, strict=True)]
    torch._foreach_mul_(moments, beta2)
    torch._foreach_addcmul_(moments, gradients, gradients, value=1.0 - beta2)
    _keep(stored, moments)
    roots = [_root(moment, eps, debias) for moment in moments]
    return [torch.div(numerator, root, out=root) for numerator, root in zip(numerators, roots, strict=True)]


def _update_moments(stored: Sequence[Tensor], mean_squares: list[Tensor], beta2: float) -> list[Tensor]:
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


def _root(moment: Tensor, eps: float, debias: float) -> Tensor:
    root = moment.sqrt()
    if debias != 1.0:
        root.mul_(debias**-0.5)
    return root.add_(eps)


def _spread(block: Block, neurons: Tensor) -> Tensor:
    """One value for each output neuron, from one for each group of them, along the block's output axis."""
    if block.head_size > 1:
        neurons = neurons.repeat_interleave(block.head_size)
    return neurons.unsqueeze(block.output_axis - 1)


def _divisor_rows(block: Block, spread: Tensor, rows: Rows) -> Tensor:
    return spread if block.output_axis == 1 else spread[rows]


def _mean_squares(block: Block, gradient: Tensor, column_sums: Callable[[Tensor], Tensor]) -> Tensor:
    """Mean of the squared gradient over each group: shape (groups,)."""
    sums = _row_square_sums(gradient) if block.output_axis == 0 else column_sums(gradient)
    if block.head_size > 1:
        sums = sums.view(-1, block.head_size).mean(dim=1)
    return sums / gradient.shape[1 - block.output_axis]


def _row_square_sums(gradient: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(gradient, dim=1, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norms.square_()


def _column_square_sums(gradient: Tensor) -> Tensor:
    """torch's norm is as fast as reading along a row, and ten times slower than this loop down a column."""
    compute = torch.promote_types(gradient.dtype, torch.float32)
    total = gradient.new_zeros(gradient.shape[1], dtype=compute)
    for rows in row_chunks(gradient):
        total.add_(gradient[rows].to(compute).square().sum(dim=0))
    return total
