"""The second moment of a block: Adam's (one value a parameter) or Adam-mini's (one value a row, neuron or head).

    v <- b2 v + (1 - b2) mean(G * G)        the mean over everything that shares one value

Adam-mini's second-version partition (Zhang et al., "Adam-mini: Use Fewer Learning Rates To Gain More", arXiv
2406.16793) follows the output neurons: a row of an embedding, an output neuron of a projection, or all neurons of one
head. Stored as a vector of one value a group; `Block.output_axis` says which axis of the block those groups divide.
"""

import torch
from torch import Tensor

from optim.blocks import Block, SecondMoment
from optim.rows import OnRows, row_chunks


def divisor(block: Block, stored: Tensor, gradient: Tensor, *, beta2: float, eps: float, debias: float) -> OnRows:
    """sqrt(v / debias) + eps by rows, with v moved on by the gradient.

    Args:
        block: The block, m × n.
        stored: v, changed in place: m × n, or one value a group.
        gradient: G, m × n.
        beta2: b2.
        eps: Adam's epsilon.
        debias: 1 - b2^t, or 1 for none.

    Returns:
        A function of some rows and the gradient there, to be called once for each row: a new tensor that broadcasts
        over those rows.
    """
    if block.second_moment is SecondMoment.ELEMENT:
        return lambda rows, piece: _root(_moved(stored[rows], piece, beta2), eps, debias)
    neurons = _root(_averaged(stored, _mean_squares(block, gradient), beta2), eps, debias)
    if block.head_size > 1:
        neurons = neurons.repeat_interleave(block.head_size)
    if block.output_axis == 1:
        return lambda rows, piece: neurons
    column = neurons.unsqueeze(1)
    return lambda rows, piece: column[rows]


def _moved(stored: Tensor, gradient: Tensor, beta2: float) -> Tensor:
    """v <- b2 v + (1 - b2) G * G in place; given back in the gradient's type."""
    moment = stored.to(gradient.dtype)
    moment.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    if moment is not stored:
        stored.copy_(moment)
    return moment


def _averaged(stored: Tensor, mean_squares: Tensor, beta2: float) -> Tensor:
    """v <- b2 v + (1 - b2) mean(G * G) in place; given back in the type of the means."""
    moment = stored.to(mean_squares.dtype).lerp_(mean_squares, 1.0 - beta2)
    if moment is not stored:
        stored.copy_(moment)
    return moment


def _root(moment: Tensor, eps: float, debias: float) -> Tensor:
    root = moment.sqrt()
    if debias != 1.0:
        root.mul_(debias**-0.5)
    return root.add_(eps)


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
