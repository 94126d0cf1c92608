"""A step of groups of blocks: AdaPM's formulas (at the top of `adapm.py`) on real tensors.

`update` is the step in the words of the paper's algorithm 1. Of each group:

    factors    L, R = argmin || L R - M ||_F and A, B so that m = G + A B       lines 4 to 6 and 8, low rank alone
    divisor    v = b2 v + (1 - b2) mean(G * G), and sqrt(v) + eps               line 7
    move       W = W - lr (clip(m / divisor, 1) + weight_decay W)               line 9

The mean is over everything that shares one value of v: Adam's keeps one a parameter, and Adam-mini's, whose
second-version partition (Zhang et al., "Adam-mini: Use Fewer Learning Rates To Gain More", arXiv 2406.16793) follows
the output neurons, one for a row of an embedding, an output neuron of a projection, or all neurons of one head: a
vector, of which `Block.output_axis` says which axis of the block it divides.

Everything elementwise is done by rows, so that no temporary is as large as a large block; gradients and weights are
views of the parameter's own. It is done by torch's operators, by compiled code for large blocks (`compiled.py`), or on
CUDA by one kernel (`kernels.py`). Arithmetic is in float32, or in float64 for float64 parameters. Nothing here waits
for an accelerator.
"""

from collections.abc import Sequence
from math import inf
from typing import TypeVar

import torch
from torch import Tensor

from ..plan.blocks import Block, FirstMoment, SecondMoment
from . import compiled, devices, groups
from .devices import Rows, cache_tensors, constant, pack, row_chunks, times
from .eight_bit import EightBit, Stored
from .groups import Group, ParamSlice
from .low_rank import Factors, Momentum, add_product, gaussian_sketch, mixed_factors, spare_sketch
from .options import StepSettings
from .rounding import round_stochastically, rounding_key
from .sharded import Exchange, Sum
from .solvers import SOLVERS

_Kept = TypeVar("_Kept", Tensor, Stored)
_FACTORS = ("momentum_left", "momentum_right")


def update(unit: Sequence[Group], gradients: Sequence[Tensor], settings: StepSettings) -> None:
    """Move the weights and the state of groups that are worked out together.

    Every process that holds a part of one must call it, with its own part of the same groups in the same order.

    Args:
        unit: The groups.
        gradients: Of the parameters that move.
        settings: Of their step.
    """
    exchange = Exchange()
    group_gradients = [_gather(group, gradients) for group in unit]
    sums = [
        _shared_sums(group, group_gradient, exchange)
        for group, group_gradient in zip(unit, group_gradients, strict=True)
    ]
    solutions = _find_factors([*zip(unit, group_gradients, strict=True)], settings, exchange)
    exchange.settle()
    for group in reversed(unit):
        group_gradient, total, factors = group_gradients.pop(), sums.pop(), None
        squares = None if total is None else total.value.to(group.compute)
        if group.block.first_moment is FirstMoment.LOW_RANK:
            carried, current, squares_of_outputs = solutions.pop()
            factors = _keep_factors(group, carried, current, settings)
            if squares_of_outputs is not None:
                squares = sums_of_groups(group, squares_of_outputs)
            del carried, current
        if group_gradient[0].numel() > 0:
            move(group, group_gradient, settings, factors, squares)
        del factors  # before those of the next group are made


def _gather(group: Group, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return G of each block, for a kernel; or of all in one tensor, B × m × n, or m × n of a single one."""
    return group.singles.gather(gradients) if group.kernels is not None else [join(group.gather(gradients))]


def _find_factors(
    given: Sequence[tuple[Group, list[Tensor]]], settings: StepSettings, exchange: Exchange
) -> list[tuple[Factors, Factors, Tensor | None]]:
    """Return L' and R', L and R, and sums of squares that were found on the way, for the low-rank groups among
    these."""
    low_rank = [pair for pair in given if pair[0].block.first_moment is FirstMoment.LOW_RANK]
    if not low_rank:
        return []
    momenta = [_momentum_of(group, gradients, settings) for group, gradients in low_rank]
    factors = SOLVERS[settings.solver](
        momenta,
        iterations=settings.iterations,
        fresh=settings.fresh,
        sketches=[
            _sketch_of(group, momentum, settings) for (group, _), momentum in zip(low_rank, momenta, strict=True)
        ],
        exchange=exchange,
    )
    return [
        (momentum.carried, current, momentum.square_sums()) for momentum, current in zip(momenta, factors, strict=True)
    ]


def _momentum_of(group: Group, gradients: Sequence[Tensor], settings: StepSettings) -> Momentum:
    """M, outputs × inputs; L' and R' of the step before in the type of the arithmetic, or where they have it the state
    itself."""
    block, portion, is_turned = group.block, group.portion, group.block.output_axis == 1
    outputs, inputs = ((), ()) if portion is None else portion.groups
    if is_turned:
        outputs, inputs = inputs, outputs
    carried = Factors(*(read(group.state[name], group.compute) for name in _FACTORS))
    if group.kernels is not None and not outputs and not inputs:  # which read gradients where they lie
        carried = Factors(*(factor if factor.ndim > 2 else factor[None] for factor in carried))
        if is_turned:
            gradients, carried = [gradient.mT for gradient in gradients], carried.transpose()
        spread: Momentum = group.kernels.SpreadMomentum(
            gradients[0], carried, settings.beta1, settings.matmul_precision, gradients=gradients
        )
        return spread
    gradient = pack(gradients[0].to(group.compute), rows=block.rank)
    if is_turned:
        gradient, carried = gradient.mT, carried.transpose()
    return Momentum(gradient, carried, settings.beta1, settings.matmul_precision, outputs, inputs)


def _keep_factors(group: Group, carried: Factors, factors: Factors, settings: StepSettings) -> Factors:
    """Return a and B, so that m is A B and the gradient's part; and let the factors that were found be the state.

    They are rounded to the state's type first: the bias correction then makes up for the rounding as well.
    """
    if group.block.output_axis == 1:
        carried, factors = carried.transpose(), factors.transpose()
    current = Factors(
        *(round_as_stored(group.state[name], factor) for name, factor in zip(_FACTORS, factors, strict=True))
    )
    mixed = mixed_factors(carried, current, settings.mixture)
    for name, factor in zip(_FACTORS, current, strict=True):
        round_into(group.state[name], factor[0] if len(group.blocks) == 1 < factor.ndim - 1 else factor)
    return mixed


def _sketch_of(group: Group, momentum: Momentum, settings: StepSettings) -> Tensor:
    """Return what R' of these blocks is replaced by at a refresh, and what its weak rows start from at other steps."""
    block, portion, right = group.block, group.portion, momentum.carried.right
    inputs = block.shape[1 - block.output_axis]
    sketch = spare_sketch(settings.seed, block.rank, inputs, right.dtype, right.device)  # later graphs cannot draw it
    if settings.fresh:
        drawn = [gaussian_sketch(settings.seed, settings.step, every.name, sketch) for every in group.blocks]
        sketch = torch.stack(drawn) if right.ndim > 2 else drawn[0]
    if portion is None:
        return sketch
    own_range = portion.ranges[1 - block.output_axis]
    return sketch[..., own_range.start : own_range.stop]


def update_fused(group: Group, gradients: Sequence[Tensor], settings: StepSettings) -> None:
    """Move blocks of any shapes, with both of Adam's moments in the weights' type, by torch's own AdamW kernel."""
    dtype, group_gradients = group.weights[0].dtype, group.gather(gradients)
    # Its 1 - b^t is 1 at infinity: without debiasing.
    step = constant(settings.step if settings.debiases else inf, torch.float32, group.weights[0].device)
    if settings.debiases and settings.counter is not None:
        step = settings.counter
    devices.increment_versions(group.weights)
    torch._fused_adamw_(
        group.weights,
        [
            gradient if gradient.is_contiguous() and gradient.dtype is dtype else gradient.to(dtype).contiguous()
            for gradient in group_gradients
        ],
        [moment for moment in group.state["exp_avg"] if isinstance(moment, Tensor)],  # as all are
        [moment for moment in group.state["exp_avg_sq"] if isinstance(moment, Tensor)],
        [],
        [step] * len(group.weights),
        lr=settings.lr if isinstance(settings.lr, float) else settings.lr.float(),  # on CUDA it reads no other type
        beta1=settings.beta1,
        beta2=settings.beta2,
        weight_decay=settings.weight_decay if group.block.decays else 0.0,
        eps=settings.eps,
        amsgrad=False,
        maximize=False,
    )


def move(
    group: Group,
    gradients: Sequence[Tensor],
    settings: StepSettings,
    factors: Factors | None = None,
    squares: Tensor | None = None,
) -> None:
    """Work out moments, and move weights.

    Args:
        group: No larger than a piece, but for a kernel.
        gradients: G of each block, for a kernel; else of all in one tensor, B × m × n, or m × n of a single one.
        settings: Of their step.
        factors: A and B of low-rank blocks, so that m is A B and the gradient's part.
        squares: The sums of G's squares over everything that shares a v, where they have been worked out before.
    """
    block, divisor = group.block, None
    if block.second_moment is not SecondMoment.ELEMENT:
        is_found_on_the_way = group.kernels is not None and factors is None and block.output_axis == 0
        if squares is not None or not is_found_on_the_way or block.head_size > 1:
            if squares is None:
                squares = sums_of_groups(group, _square_sums(group, gradients))
            divisor = shared_divisor(group, squares, settings)
            del squares
    if group.kernels is not None:
        _move_by_kernel(group, gradients, settings, factors, divisor)
    elif group.is_compiled(gradients[0]):
        _move_compiled(group, gradients[0], settings, factors, divisor)
    else:
        _move_by_rows(group, gradients[0], settings, factors, divisor)


def _move_by_rows(
    group: Group, gradient: Tensor, settings: StepSettings, factors: Factors | None, divisor: Tensor | None
) -> None:
    """Move the weights by torch's operators; several blocks at once."""
    block = group.block
    for rows in [...] if len(group.blocks) > 1 else row_chunks(gradient, group.limit()):
        piece = _rows_of(gradient, rows).to(group.compute)
        if factors is not None:
            left, weight = _rows_of(factors.left, rows), settings.mixture.gradient
            if piece.ndim > 2:
                numerator = add_product(piece, left, factors.right, beta=weight, alpha=1.0)
            else:
                numerator = times(left, factors.right).add_(piece, alpha=weight)
        elif block.first_moment is FirstMoment.FULL:
            numerator = full_momentum(_some_rows(group.state["exp_avg"], rows), piece, settings.beta1)
        else:
            numerator = piece
        if divisor is not None:
            root = divisor if divisor.shape[-2] == 1 else _rows_of(divisor, rows)
        else:
            root = element_divisor(_some_rows(group.state["exp_avg_sq"], rows), piece, settings)
        weights = group.weights if rows is ... else [_rows_of(weight, rows) for weight in group.weights]
        exact = _descend(block, weights, numerator, root, settings)
        if _rounds_by_chance(weights[0], settings):
            singles = group.singles.slices
            for single, new in zip(singles, [exact] if len(singles) == 1 else exact.unbind(), strict=True):
                _write_by_chance(single, rows, new, settings)
        else:
            round_into(weights, exact)


def _move_by_kernel(
    group: Group,
    gradients: Sequence[Tensor],
    settings: StepSettings,
    factors: Factors | None,
    divisor: Tensor | None,
) -> None:
    """Move all blocks at once; v of each element is updated on the way."""
    kernels, block, singles = group.kernels, group.block, group.singles
    assert kernels is not None
    chances = None
    if _rounds_by_chance(group.weights[0], settings):
        keys = [rounding_key(settings.seed, settings.step, block.name) for block in group.blocks]
        row, column = _origin(group.slices[0]) or (0, 0)
        chances = kernels.Chances(keys, row * block.shape[1] + column, block.shape[1])
    blocks = kernels.Blocks(
        [weight.detach() for weight in singles.weights],
        gradients,
        singles.state["exp_avg"] if block.first_moment is FirstMoment.FULL else [],
        singles.state["exp_avg_sq"] if divisor is None else [],
    )
    numbers = _numbers(settings, block, torch.float32, group.weights[0].device)
    kernels.move(blocks, factors, divisor, numbers, chances=chances, precision=settings.matmul_precision)


def _move_compiled(
    group: Group, gradient: Tensor, settings: StepSettings, factors: Factors | None, divisor: Tensor | None
) -> None:
    """Move one block at a time, by C, with everything elementwise in one pass."""
    first_moment, singles = group.block.first_moment, group.singles
    is_single = len(singles.weights) == 1
    gradients = [gradient] if is_single else gradient.unbind()
    numbers = _numbers(settings, group.block, group.compute, gradient.device)
    limit = min(max(group.largest, groups.ALWAYS_ELEMENTS), devices.COMPILED_CHUNK_ELEMENTS)
    for index, weight in enumerate(singles.weights):
        # Where there is no momentum, nothing is worked out beside it.
        for rows in [...] if first_moment is FirstMoment.NONE else row_chunks(weight, limit):
            slope = _rows_of(gradients[index], rows)
            product = moment = root = None
            if factors is not None:
                left, right = factors if is_single else (factors.left[index], factors.right[index])
                product = times(_rows_of(left, rows), right)
            elif first_moment is FirstMoment.FULL:
                product = full_momentum([_rows_of(singles.state["exp_avg"][index], rows)], slope, settings.beta1)
            if divisor is None:
                moment = read([_rows_of(singles.state["exp_avg_sq"][index], rows)], group.compute)
            else:
                root = divisor if is_single else divisor[index]
                root = root if root.shape[0] == 1 else _rows_of(root, rows)
            compiled.move(_rows_of(weight, rows), slope, product, moment, root, numbers)


def _numbers(settings: StepSettings, block: Block, compute: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers of a step of such blocks, as `compiled.move` and `kernels.move` have them."""
    full, lr = block.first_moment is FirstMoment.FULL, settings.lr_of(block)
    weights = {FirstMoment.FULL: 0.0, FirstMoment.NONE: 1.0, FirstMoment.LOW_RANK: settings.mixture.gradient}
    numbers = (
        weights[block.first_moment],
        1.0 / settings.momentum_debias if full else 1.0,
        settings.beta2,
        1.0 - settings.beta2,
        settings.second_debias**-0.5,
        settings.eps,
        inf if full or settings.clip is None else settings.clip,
        1.0 - (lr * settings.weight_decay if block.decays else 0.0),
        lr,
        1.0 - settings.beta1,
    )
    if settings.counter is None:
        return _on_device(numbers, compute, device)
    key = (block.first_moment, block.decays, compute, device)
    if key not in settings.on_device:
        parts = [
            number if isinstance(number, Tensor) else constant(number, torch.float64, device) for number in numbers
        ]
        settings.on_device[key] = torch.stack(parts).to(compute)
    return settings.on_device[key]


@cache_tensors(maxsize=64)
def _on_device(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers on their device; steps with equal numbers share the copy."""
    return torch.tensor(numbers, dtype=dtype).to(device, non_blocking=True)


def full_momentum(stored: Sequence[Stored], gradient: Tensor, beta1: float) -> Tensor:
    """Update m = b1 m + (1 - b1) G in place and return it; it must not be written to."""
    average = read(stored, gradient.dtype).lerp_(gradient, 1.0 - beta1)
    round_into(stored, average)
    return average


def element_divisor(stored: Sequence[Stored], gradient: Tensor, settings: StepSettings) -> Tensor:
    """Update v, one for each element, and return sqrt(v / debias) + eps, which may be written to."""
    moment = read(stored, gradient.dtype)
    moment.mul_(settings.beta2).addcmul_(gradient, gradient, value=1.0 - settings.beta2)
    round_into(stored, moment)
    return _root(moment, settings)


def shared_divisor(group: Group, squares: Tensor, settings: StepSettings) -> Tensor:
    """Update v, one for each group, and return sqrt(v / debias) + eps, m × 1 or 1 × n.

    Args:
        group: The blocks, of which v is changed in place.
        squares: The sums of G's squares over everything that shares a v, of one block or a batch of them.
        settings: Of their step.
    """
    block, axis = group.block, group.block.output_axis
    mean_weight = (1.0 - settings.beta2) / (block.head_size * block.shape[1 - axis])
    moment = read(group.state["exp_avg_sq"], squares.dtype)
    # Once v is infinite it stays so, and the group at rest, as in Adam; `lerp` would make NaN of it.
    torch.add(squares * mean_weight, moment, alpha=settings.beta2, out=moment)
    round_into(group.state["exp_avg_sq"], moment)
    root = _root(moment, settings)
    if block.head_size > 1:
        root = root.repeat_interleave(block.head_size, dim=-1)
        if group.portion is not None:  # of all heads: one may lie on several processes
            root = root[..., group.portion.ranges[axis].start : group.portion.ranges[axis].stop]
    return root.unsqueeze(-1 if axis == 0 else -2)


def _shared_sums(group: Group, gradients: Sequence[Tensor], exchange: Exchange) -> Sum | None:
    """Ask for the sums of G's squares that this process has a part of."""
    block, portion = group.block, group.portion
    if portion is None or block.second_moment is SecondMoment.ELEMENT:
        return None
    outputs = block.output_axis
    groups = (*portion.groups[1 - outputs], *(portion.groups[outputs] if block.head_size > 1 else ()))
    if not groups:
        return None
    return exchange.ask(sums_of_groups(group, _square_sums(group, gradients)).double(), groups)


def sums_of_groups(group: Group, squares: Tensor) -> Tensor:
    """Return the sums over everything that shares a v, from the sums of squares of each output that is here."""
    block, portion = group.block, group.portion
    if block.head_size == 1:
        return squares
    if portion is None:
        return squares.view(*squares.shape[:-1], -1, block.head_size).sum(dim=-1)
    own_range = portion.ranges[block.output_axis]
    heads = torch.arange(own_range.start, own_range.stop, device=squares.device) // block.head_size
    sums = squares.new_zeros((*squares.shape[:-1], block.shape[block.output_axis] // block.head_size))
    return sums.index_add_(-1, heads, squares)


def _square_sums(group: Group, gradients: Sequence[Tensor]) -> Tensor:
    """Return the sums of squares of each output of G, of one block or a batch of them."""
    gradient, axis = gradients[0], group.block.output_axis
    if group.kernels is not None:
        sums: Tensor = group.kernels.square_sums(gradients, axis=axis)
        return sums if len(group.blocks) > 1 else sums[0]
    if axis == 1 and gradient.ndim == 2 and group.is_compiled(gradient):
        return compiled.column_square_sums(gradient)
    return row_square_sums(gradient) if axis == 0 else column_square_sums(gradient)


def _root(moment: Tensor, settings: StepSettings) -> Tensor:
    root = moment.sqrt()
    if settings.debiases:
        root.mul_(settings.second_debias**-0.5)
    return root.add_(settings.eps)


def row_square_sums(gradient: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(gradient, dim=-1, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norms.square_()


def column_square_sums(gradient: Tensor) -> Tensor:
    """torch's norm is as fast as reading along a row, and slower than this loop down a column."""
    compute = torch.promote_types(gradient.dtype, torch.float32)
    if gradient.ndim > 2:  # several blocks, no larger than a chunk
        return gradient.to(compute).square().sum(dim=-2)
    total = gradient.new_zeros(gradient.shape[1], dtype=compute)
    for rows in row_chunks(gradient):
        total.add_(gradient[rows].to(compute).square().sum(dim=0))
    return total


def _rows_of(stored: _Kept, rows: Rows) -> _Kept:
    return stored if rows is ... else stored[rows]


def _some_rows(stored: Sequence[Stored], rows: Rows) -> Sequence[Stored]:
    return stored if rows is ... else [_rows_of(state, rows) for state in stored]


def join(parts: Sequence[Tensor]) -> Tensor:
    """Return a single tensor as it is, several as a batch."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts))


def read(stored: Sequence[Stored], dtype: torch.dtype) -> Tensor:
    """State of one block, or of several as a batch, in that type: itself where it is a single one of that type."""
    return join([state.read(dtype) if isinstance(state, EightBit) else state for state in stored]).to(dtype)


def round_as_stored(stored: Sequence[Stored], exact: Tensor) -> Tensor:
    """Return the values that would be read after `round_into`, in the type of `exact`."""
    first = stored[0]
    if isinstance(first, EightBit):
        return first.round_trip(exact)
    return exact if first.dtype is exact.dtype else exact.to(first.dtype).to(exact.dtype)


def round_into(stored: Sequence[Stored], exact: Tensor) -> None:
    """Write back what was worked out in a copy: of several, or in a wider type than is kept."""
    if stored[0] is exact:
        return
    plain = [state for state in stored if isinstance(state, Tensor)]
    if len(plain) < len(stored):
        for state, new in zip(stored, [exact] if len(stored) == 1 else exact.unbind(), strict=True):
            if isinstance(state, EightBit):
                state.write(new)
    elif len(plain) > 1:
        torch._foreach_copy_(plain, list(exact.unbind()))
    else:
        plain[0].copy_(exact)


def _descend(
    block: Block, weights: Sequence[Tensor], numerator: Tensor, divisor: Tensor, settings: StepSettings
) -> Tensor:
    """Return W - lr (clip(m / divisor) + weight_decay W); in place if a single W has the compute type."""
    lr = settings.lr_of(block)
    exact = join(weights).to(numerator.dtype)
    if block.decays and settings.weight_decay != 0.0:
        exact.mul_(1.0 - lr * settings.weight_decay)
    scale, full = lr / settings.momentum_debias, block.first_moment is FirstMoment.FULL
    if isinstance(lr, Tensor) or isinstance(scale, Tensor):  # which torch's operators of several steps do not take
        update = numerator / divisor
        if not full and settings.clip is not None:
            update.clamp_(-settings.clip, settings.clip)
        exact.sub_(update.mul_(scale if full else lr))
    elif full:
        exact.addcdiv_(numerator, divisor, value=-scale)
    else:
        shared = block.second_moment is not SecondMoment.ELEMENT  # then other rows may need the divisor again
        update = torch.div(numerator, divisor, out=None if shared else divisor)
        if settings.clip is not None:
            update.clamp_(-settings.clip, settings.clip)
        exact.add_(update, alpha=-lr)
    return exact


def _rounds_by_chance(weight: Tensor, settings: StepSettings) -> bool:
    return settings.bf16_stochastic_round and weight.dtype is torch.bfloat16


def _write_by_chance(single: ParamSlice, rows: Rows, exact: Tensor, settings: StepSettings) -> None:
    """Round new rows of a block to bfloat16 by chance."""
    block, weight = single.blocks[0], _rows_of(single.weight, rows)
    origin = [*(_origin(single) or (0,) * weight.ndim)]
    if isinstance(rows, slice):
        origin[0] += rows.start
    key = rounding_key(settings.seed, settings.step, block.name)
    weight.copy_(round_stochastically(exact, key, origin=origin, whole_shape=block.shape))


def _origin(single: ParamSlice) -> tuple[int, ...]:
    """Return the start of this process's part in the block, for each dimension; empty if all of it is here."""
    return () if single.portion is None else tuple(span.start for span in single.portion.ranges)
