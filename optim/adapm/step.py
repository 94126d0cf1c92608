"""A step of groups of blocks: AdaPM's formulas (at the top of `adapm.py`) on real tensors.

`update` is the step in the words of the paper's algorithm 1. Of each group:

    factors    L, R = argmin || L R - M ||_F and A, B so that m = G + A B       lines 4 to 6 and 8, low rank alone
    divisor    v = b2 v + (1 - b2) mean(G * G), and sqrt(v) + eps               line 7
    move       W = W - lr (clip(m / divisor, 1) + weight_decay W)               line 9

The mean is over everything that shares one value of v: Adam's keeps one per parameter, and Adam-mini's, whose
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
from . import compiled, devices
from .devices import Rows, cache_tensors, constant, matmul, pack, row_chunks
from .eight_bit import EightBit, Stored
from .groups import Group, ParamSlice
from .low_rank import Factors, Momentum, add_product, gaussian_sketch, mixed_factors, spare_sketch
from .options import StepSettings
from .rounding import round_stochastically, rounding_key
from .sharded import Groups, sum_over_processes
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
    given = [(group, _gather(group, gradients)) for group in unit]
    sums, solutions = _shared_sums(given), _find_factors(given, settings)
    while given:
        (group, group_gradient), squares, factors = given.pop(), sums.pop(), None
        if group.block.first_moment is FirstMoment.LOW_RANK:
            carried, current, squares_of_outputs = solutions.pop()
            factors = _keep_factors(group, carried, current, settings)
            if squares_of_outputs is not None:
                squares = sums_of_groups(group, squares_of_outputs)
            del carried, current
        if group_gradient[0].numel() == 0:
            continue
        divisor = None
        # A kernel itself finds the sums of rows, unless products have found them before.
        if group.block.second_moment is not SecondMoment.ELEMENT and not (
            group.kernels is not None
            and factors is None
            and squares is None
            and group.block.output_axis == 0
            and group.block.head_size == 1
        ):
            if squares is None:
                squares = sums_of_groups(group, _square_sums(group, group_gradient))
            divisor = shared_divisor(group, squares, settings)
        if group.kernels is not None:
            _move_by_kernel(group, group_gradient, settings, factors, divisor)
        else:
            _move_by_rows(group, group_gradient[0], settings, factors, divisor)
        del factors  # before those of the next group are made


def _gather(group: Group, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return G of each block, for a kernel; or of all in one tensor, B × m × n, or m × n of a single one."""
    group_gradients = group.gather(gradients)
    if group.kernels is not None:
        return group_gradients
    gradient = join(group_gradients)
    if group.is_compiled:  # C reads float32, each row's elements side by side
        gradient = gradient.to(group.compute)
        gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
    return [gradient]


def _find_factors(
    given: Sequence[tuple[Group, list[Tensor]]], settings: StepSettings
) -> list[tuple[Factors, Factors, Tensor | None]]:
    """Return L' and R', L and R, and sums of squares that were found on the way, for the low-rank groups among
    these."""
    low_rank = [pair for pair in given if pair[0].block.first_moment is FirstMoment.LOW_RANK]
    if not low_rank:
        return []
    momenta = [_momentum_of(group, gradients, settings) for group, gradients in low_rank]
    factors = SOLVERS[settings.options["solver"]](
        momenta,
        iterations=settings.options["inner_iterations"] or 1,  # nearly as good as the exact SVD (docs/LOG.md)
        fresh=settings.fresh,
        sketches=[
            _sketch_of(group, momentum, settings) for (group, _), momentum in zip(low_rank, momenta, strict=True)
        ],
    )
    return [
        (momentum.carried, current, momentum.square_sums()) for momentum, current in zip(momenta, factors, strict=True)
    ]


def _momentum_of(group: Group, gradients: Sequence[Tensor], settings: StepSettings) -> Momentum:
    """Return M, outputs × inputs, with L' and R' of the step before in the type of the arithmetic; the state itself
    if it has that type."""
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
        round_into(group.state[name], factor[0] if len(group.slices) == 1 < factor.ndim - 1 else factor)
    return mixed


def _sketch_of(group: Group, momentum: Momentum, settings: StepSettings) -> Tensor:
    """Return what R' of these blocks is replaced by at a refresh, and what its weak rows start from at other steps."""
    block, portion, right = group.block, group.portion, momentum.carried.right
    inputs = block.shape[1 - block.output_axis]
    seed = settings.options["seed"]
    sketch = spare_sketch(seed, block.rank, inputs, right.dtype, right.device)  # later graphs cannot draw it
    if settings.fresh:
        drawn = [gaussian_sketch(seed, settings.step, part.block.name, sketch) for part in group.slices]
        sketch = torch.stack(drawn) if right.ndim > 2 else drawn[0]
    if portion is None:
        return sketch
    own_range = portion.ranges[1 - block.output_axis]
    return sketch[..., own_range.start : own_range.stop]


def update_fused(group: Group, gradients: Sequence[Tensor], settings: StepSettings) -> None:
    """Move blocks of any shapes, with both of Adam's moments in the weights' type, by torch's own AdamW kernel."""
    dtype, debias = group.weights[0].dtype, settings.options["debias_moments"]
    # Its 1 - b^t is 1 at infinity: without debiasing.
    step = constant(settings.step if debias else inf, torch.float32, group.weights[0].device)
    if debias and settings.counter is not None:
        step = settings.counter
    devices.increment_versions(group.weights)
    torch._fused_adamw_(
        group.weights,
        [
            gradient if gradient.is_contiguous() and gradient.dtype is dtype else gradient.to(dtype).contiguous()
            for gradient in group.gather(gradients)
        ],
        group.averages,
        group.moments,
        [],
        [step] * len(group.weights),
        lr=settings.lr if isinstance(settings.lr, float) else settings.lr.float(),  # on CUDA it reads no other type
        beta1=settings.beta1,
        beta2=settings.beta2,
        weight_decay=settings.options["weight_decay"] if group.block.decays else 0.0,
        eps=settings.options["eps"],
        amsgrad=False,
        maximize=False,
    )


def _move_by_rows(
    group: Group, gradient: Tensor, settings: StepSettings, factors: Factors | None, divisor: Tensor | None
) -> None:
    """Move the weights by torch's operators, several blocks at once; or a large one by C, in one pass."""
    block, numbers = group.block, None
    is_whole = len(group.slices) > 1
    if group.is_compiled:
        numbers = _numbers(settings, block, group.compute, gradient.device)
        is_whole = block.first_moment is FirstMoment.NONE  # nothing is worked out beside it
    for rows in [...] if is_whole else row_chunks(gradient, group.limit):
        piece = _rows_of(gradient, rows).to(group.compute)
        weights = group.weights if rows is ... else [_rows_of(weight, rows) for weight in group.weights]
        product, root = None, divisor
        if block.first_moment is FirstMoment.FULL:
            average = _rows_of(group.state["exp_avg"], rows)
            product = read(average, piece.dtype).lerp_(piece, 1.0 - settings.beta1)
            round_into(average, product)
        elif factors is not None and piece.ndim == 2:
            product = matmul(_rows_of(factors.left, rows), factors.right)
        if divisor is not None and divisor.shape[-2] > 1:
            root = _rows_of(divisor, rows)
        if numbers is not None:
            moment = None if root is not None else read(_rows_of(group.state["exp_avg_sq"], rows), group.compute)
            compiled.move(weights[0], piece, product, moment, root, numbers)
            continue
        if root is None:
            root = element_divisor(_rows_of(group.state["exp_avg_sq"], rows), piece, settings)
        if factors is None:
            numerator = piece if product is None else product
        elif product is None:
            numerator = add_product(piece, *factors, beta=settings.mixture.gradient, alpha=1.0)
        else:
            numerator = product.add_(piece, alpha=settings.mixture.gradient)
        exact = _descend(block, weights, numerator, root, settings)
        if _rounds_by_chance(group, settings):
            for part, new in zip(group.slices, [exact] if len(group.slices) == 1 else exact.unbind(), strict=True):
                _write_by_chance(part, rows, new, settings)
        elif len(weights) > 1:
            torch._foreach_copy_(weights, list(exact.unbind()))
        else:
            round_into(weights[0], exact)


def _move_by_kernel(
    group: Group,
    gradients: Sequence[Tensor],
    settings: StepSettings,
    factors: Factors | None,
    divisor: Tensor | None,
) -> None:
    """Move all blocks at once; v of each element is updated on the way."""
    kernels, block, rounding = group.kernels, group.block, None
    assert kernels is not None
    if _rounds_by_chance(group, settings):
        keys = [rounding_key(settings.options["seed"], settings.step, part.block.name) for part in group.slices]
        row, column = _origin(group.slices[0])
        rounding = kernels.StochasticRounding(keys, row * block.shape[1] + column, block.shape[1])
    blocks = kernels.Blocks(
        group.weights,
        gradients,
        group.averages,
        group.moments if divisor is None else [],
    )
    numbers = _numbers(settings, block, torch.float32, group.weights[0].device)
    kernels.move(blocks, factors, divisor, numbers, rounding=rounding, precision=settings.matmul_precision)


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
        settings.options["eps"],
        inf if full or settings.options["clip"] is None else settings.options["clip"],
        1.0 - (lr * settings.options["weight_decay"] if block.decays else 0.0),
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


def element_divisor(stored: Stored, gradient: Tensor, settings: StepSettings) -> Tensor:
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


def _shared_sums(given: Sequence[tuple[Group, list[Tensor]]]) -> list[Tensor | None]:
    """Return the sums of G's squares over everything that shares a v, where several processes have a part of a block;
    None for other groups."""
    parts, among = dict[int, Tensor](), list[Groups]()
    for index, (group, gradients) in enumerate(given):
        if group.sharers:
            parts[index] = sums_of_groups(group, _square_sums(group, gradients)).double()
            among.append(group.sharers)
    sums = dict(zip(parts, sum_over_processes([*parts.values()], among), strict=True))
    return [sums[index].to(group.compute) if index in sums else None for index, (group, _) in enumerate(given)]


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
        return sums if len(group.slices) > 1 else sums[0]
    compute = torch.promote_types(gradient.dtype, torch.float32)
    if axis == 0:
        norms: Tensor = torch.linalg.vector_norm(gradient, dim=-1, dtype=compute)
        return norms.square_()
    # torch's norm is as fast as reading along a row, and slower than this loop down a column.
    total = gradient.new_zeros((*gradient.shape[:-2], gradient.shape[-1]), dtype=compute)
    for rows in row_chunks(gradient) if gradient.ndim == 2 else [...]:  # several blocks are no larger than a chunk
        total.add_(gradient[rows].to(compute).square().sum(dim=-2))
    return total


def _root(moment: Tensor, settings: StepSettings) -> Tensor:
    root = moment.sqrt()
    if settings.options["debias_moments"]:
        root.mul_(settings.second_debias**-0.5)
    return root.add_(settings.options["eps"])


def _rows_of(stored: _Kept, rows: Rows) -> _Kept:
    return stored if rows is ... else stored[rows]


def join(parts: Sequence[Tensor]) -> Tensor:
    """Return a single tensor as it is, several as a batch."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts))


def read(stored: Stored, dtype: torch.dtype) -> Tensor:
    """Return state in that type: itself where it has it."""
    return stored.read(dtype) if isinstance(stored, EightBit) else stored.to(dtype)


def round_as_stored(stored: Stored, exact: Tensor) -> Tensor:
    """Return the values that would be read after `round_into`, in the type of `exact`."""
    return stored.round_trip(exact) if isinstance(stored, EightBit) else exact.to(stored.dtype).to(exact.dtype)


def round_into(stored: Stored, exact: Tensor) -> None:
    """Write back what was worked out in a copy, in a wider type than is kept."""
    if isinstance(stored, EightBit):
        stored.write(exact)
    elif stored is not exact:
        stored.copy_(exact)


def _descend(
    block: Block, weights: Sequence[Tensor], numerator: Tensor, divisor: Tensor, settings: StepSettings
) -> Tensor:
    """Return W - lr (clip(m / divisor) + weight_decay W); in place if a single W has the compute type."""
    lr, decay, clip = settings.lr_of(block), settings.options["weight_decay"], settings.options["clip"]
    exact = join(weights).to(numerator.dtype)
    if block.decays and decay != 0.0:
        exact.mul_(1.0 - lr * decay)
    full = block.first_moment is FirstMoment.FULL
    scale = lr / settings.momentum_debias if full else lr
    shared = block.second_moment is not SecondMoment.ELEMENT  # then other rows may need the divisor again
    update = torch.div(numerator, divisor, out=None if shared else divisor)
    if not full and clip is not None:
        update.clamp_(-clip, clip)
    if isinstance(scale, Tensor):  # which torch's operators of several steps do not take
        exact.sub_(update.mul_(scale))
    else:
        exact.add_(update, alpha=-scale)
    return exact


def _rounds_by_chance(group: Group, settings: StepSettings) -> bool:
    return settings.options["bf16_stochastic_round"] and group.weights[0].dtype is torch.bfloat16


def _write_by_chance(part: ParamSlice, rows: Rows, exact: Tensor, settings: StepSettings) -> None:
    """Round new rows of a block to bfloat16 by chance."""
    origin = [*_origin(part)]
    if isinstance(rows, slice):
        origin[0] += rows.start
    key = rounding_key(settings.options["seed"], settings.step, part.block.name)
    rounded = round_stochastically(exact, key, origin=origin, whole_shape=part.block.shape)
    _rows_of(part.weight, rows).copy_(rounded)


def _origin(single: ParamSlice) -> tuple[int, ...]:
    """Return the start of this process's part in the block, for each dimension."""
    return (
        (0,) * len(single.block.shape)
        if single.portion is None
        else tuple(span.start for span in single.portion.ranges)
    )
