"""One step of a batch of blocks: AdaPM's formulas (they stand at the top of `adapm.py`) on real tensors.

    v <- b2 v + (1 - b2) mean(G * G)        the mean over everything that shares one value

is Adam's second moment, one value a parameter, or Adam-mini's, whose second-version partition (Zhang et al.,
"Adam-mini: Use Fewer Learning Rates To Gain More", arXiv 2406.16793) follows the output neurons: a row of an embedding,
an output neuron of a projection, or all neurons of one head. Stored as a vector of one value a group;
`Block.output_axis` says which axis of the block those groups divide.

Blocks are updated together, because one call on several small blocks costs little more than on one. They share a batch
if the same formulas with the same numbers apply to them; low-rank blocks have the same shape as well, so that their
factors can be stacked. A batch is bounded: it is one block, or no larger than a piece (`devices.py`) and than the
largest block of the plan, so that the memory that a step needs for a while does not grow with a model's depth.

Everything elementwise is done by rows, so that no temporary is as large as a large block; gradients and weights are
views of the parameter's own. It is done by torch's operators, or for large blocks by compiled code (`compiled.py`):
`update_batch` chooses. Arithmetic is in float32, or in float64 for float64 parameters. Nothing here waits for an
accelerator.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from ..plan.blocks import Block, BlockPlan, FirstMoment, SecondMoment
from . import compiled
from .devices import Rows, chunk_elements, pack, row_chunks, times
from .low_rank import Factors, Momentum, add_product, gaussian_sketch, mixed_factors
from .options import StepSettings
from .rounding import round_stochastically, rounding_key
from .solvers import SOLVERS


class Member(NamedTuple):
    """One block of a parameter that has a gradient, and where its state is."""

    block: Block
    weight: Tensor
    """W, the block's part of the parameter."""
    gradient: Tensor
    """G, the block's part of the parameter's gradient."""
    state: dict[str, Tensor]
    """The parameter's state, under `Block.key`."""
    origin: tuple[int, ...] = ()
    """Where in the block this part of it begins, for each dimension; empty where all of the block is here."""

    def state_tensor(self, name: str) -> Tensor:
        """A state tensor of the block."""
        return self.state[self.block.key(name)]


def likeness(block: Block) -> tuple[object, ...]:
    """The batch that a block belongs to, among those of its parameter's type, device, group and step."""
    shape = (block.shape, block.rank, block.output_axis) if block.first_moment is FirstMoment.LOW_RANK else ()
    return (block.first_moment, block.second_moment, block.state_dtype, block.decays, *shape)


def largest_block(plan: BlockPlan) -> int:
    """Elements of the plan's largest block."""
    return max((prod(block.shape) for block in plan), default=0)


def limit_of(weight: Tensor, *, largest: int, compiles: bool = False) -> int:
    """How many elements of blocks like this one may be worked on at a time, where the largest has `largest`.

    Half as many where torch's operators, not compiled code, work on weights that are narrower than the arithmetic: they
    need copies of W and G as well.
    """
    narrow = weight.dtype.itemsize < torch.float32.itemsize and not compiles
    return min(max(1, largest // 2 if narrow else largest), chunk_elements(weight.device, compiles=compiles))


def split_into_batches(members: Iterable[Member], *, largest: int) -> Iterator[list[Member]]:
    """Cut a list of like blocks into batches, in order."""
    batch: list[Member] = []
    elements = 0
    for member in members:
        size = member.weight.numel()
        if batch and elements + size > limit_of(member.weight, largest=largest):
            yield batch
            batch, elements = [], 0
        batch.append(member)
        elements += size
    if batch:
        yield batch


def update_batch(batch: Sequence[Member], settings: StepSettings, *, largest: int, compiles: bool = False) -> None:
    """Move a batch of like blocks, and their state.

    Args:
        batch: Blocks that `likeness` finds alike; their weights W (m × n) and state are changed in place.
        settings: Of the parameters' group at the parameters' step.
        largest: Elements of the plan's largest block.
        compiles: Whether large blocks are moved by compiled code.
    """
    blocks, gradients = [member.block for member in batch], [member.gradient for member in batch]
    compute = torch.promote_types(batch[0].weight.dtype, torch.float32)
    compiles = compiles and all(compiled.is_worth_compiling(member.weight) for member in batch)
    factors, momenta, divisors = None, None, None
    if blocks[0].first_moment is FirstMoment.LOW_RANK:
        gradient = _stack(gradients, compute)
        factors = _low_rank_factors(batch, gradient, settings)
        if len(batch) > 1 and not compiles:
            momenta = add_product(gradient, *factors, beta=settings.mixture.gradient, alpha=1.0).unbind()
        del gradient  # of several blocks, and of narrow weights, it is a copy
    if blocks[0].second_moment is not SecondMoment.ELEMENT:
        moments = [member.state_tensor("exp_avg_sq") for member in batch]
        divisors = shared_divisors(blocks, moments, gradients, settings, compiles=compiles)
    move_batch(batch, settings, factors, momenta, divisors, largest=largest, compiles=compiles)


def move_batch(
    batch: Sequence[Member],
    settings: StepSettings,
    factors: Factors | None,
    momenta: Sequence[Tensor] | None,
    divisors: Sequence[Tensor] | None,
    *,
    largest: int,
    compiles: bool,
) -> None:
    """The elementwise part of `update_batch`: moments of one value an element, and weights.

    Args:
        batch: As for `update_batch`.
        settings: As for `update_batch`.
        factors: A and B of low-rank blocks, so that m is A B and the gradient's part.
        momenta: m of low-rank blocks, where it has been worked out.
        divisors: Of blocks that keep one v a group.
        largest: As for `update_batch`.
        compiles: As for `update_batch`.
    """
    blocks, gradients = [member.block for member in batch], [member.gradient for member in batch]
    compute = torch.promote_types(batch[0].weight.dtype, torch.float32)
    if compiles and all(compiled.is_worth_compiling(member.weight) for member in batch):
        _move_compiled(batch, settings, factors, divisors, compute, largest)
        return
    # A batch of several is no larger than a chunk (`split_into_batches`): the first block's rows are everybody's.
    for rows in row_chunks(gradients[0], limit_of(batch[0].weight, largest=largest)):
        pieces = [gradient[rows].to(compute) for gradient in gradients]
        if momenta is not None:
            numerators = list(momenta)
        elif factors is not None:
            numerators = [times(factors.left[rows], factors.right).add_(pieces[0], alpha=settings.mixture.gradient)]
        elif blocks[0].first_moment is FirstMoment.FULL:
            stored = [member.state_tensor("exp_avg")[rows] for member in batch]
            numerators = full_momenta(stored, pieces, settings.beta1)
        else:
            numerators = pieces
        if divisors is not None:
            roots = [_rows_of(divisor, rows) for divisor in divisors]
        else:
            stored = [member.state_tensor("exp_avg_sq")[rows] for member in batch]
            roots = element_divisors(stored, pieces, settings)
        weights = [member.weight[rows] for member in batch]
        exact = _descend(blocks[0], weights, numerators, roots, settings)
        for member, weight, new in zip(batch, weights, exact, strict=True):
            _write_weight(member, rows, weight, new, settings)


def _move_compiled(
    batch: Sequence[Member],
    settings: StepSettings,
    factors: Factors | None,
    divisors: Sequence[Tensor] | None,
    compute: torch.dtype,
    largest: int,
) -> None:
    """As the loop above, a block at a time, with everything elementwise in one pass."""
    first_moment = batch[0].block.first_moment
    numbers = _numbers(settings, first_moment, batch[0].block.decays, compute, batch[0].weight.device)
    for index, member in enumerate(batch):
        weight = member.weight.detach()
        by_chance = _rounds_by_chance(weight, settings)
        whole = first_moment is FirstMoment.NONE and not by_chance  # nothing is worked out beside it
        limit = weight.numel() if whole else limit_of(weight, largest=largest, compiles=True)
        for rows in row_chunks(weight, limit):
            product = moment = divisor = None
            if factors is not None:
                left, right = factors if len(batch) == 1 else (factors.left[index], factors.right[index])
                product = times(left[rows], right)
            elif first_moment is FirstMoment.FULL:
                gradient = member.gradient[rows].to(compute)
                (product,) = full_momenta([member.state_tensor("exp_avg")[rows]], [gradient], settings.beta1)
            if divisors is None:
                moment = member.state_tensor("exp_avg_sq")[rows]
            else:
                divisor = _rows_of(divisors[index], rows)
            exact = weight[rows].to(compute) if by_chance else weight[rows]
            compiled.move(exact, member.gradient[rows], product, moment, divisor, numbers)
            if by_chance:
                _write_weight(member, rows, weight[rows], exact, settings)


@lru_cache(maxsize=64)
def _numbers(
    settings: StepSettings, first_moment: FirstMoment, decays: bool, compute: torch.dtype, device: torch.device
) -> Tensor:
    """The numbers of a compiled step of such blocks, as `compiled.move` has them, sent to their device once."""
    full = first_moment is FirstMoment.FULL
    lr = settings.lr * (settings.momentum_free_lr_scale if first_moment is FirstMoment.NONE else 1.0)
    weights = {FirstMoment.FULL: 0.0, FirstMoment.NONE: 1.0, FirstMoment.LOW_RANK: settings.mixture.gradient}
    numbers = [
        weights[first_moment],
        1.0 / settings.momentum_debias if full else 1.0,
        settings.beta2,
        1.0 - settings.beta2,
        settings.second_debias**-0.5,
        settings.eps,
        float("inf") if full or settings.clip is None else settings.clip,
        1.0 - (lr * settings.weight_decay if decays else 0.0),
        lr,
    ]
    return torch.tensor(numbers, dtype=compute).to(device, non_blocking=True)


def full_momenta(stored: list[Tensor], gradients: list[Tensor], beta1: float) -> list[Tensor]:
    """m = b1 m + (1 - b1) G in place; not to be written to."""
    averages = [old.to(gradient.dtype) for old, gradient in zip(stored, gradients, strict=True)]
    torch._foreach_lerp_(averages, gradients, 1.0 - beta1)
    _round_into(stored, averages)
    return averages


def element_divisors(stored: list[Tensor], gradients: list[Tensor], settings: StepSettings) -> list[Tensor]:
    """sqrt(v / debias) + eps of pieces that keep one v an element, with v moved on; they may be written to."""
    moments = [old.to(gradient.dtype) for old, gradient in zip(stored, gradients, strict=True)]
    torch._foreach_mul_(moments, settings.beta2)
    torch._foreach_addcmul_(moments, gradients, gradients, value=1.0 - settings.beta2)
    _round_into(stored, moments)
    return _roots(moments, settings)


def shared_divisors(
    blocks: Sequence[Block],
    stored: Sequence[Tensor],
    gradients: Sequence[Tensor],
    settings: StepSettings,
    *,
    compiles: bool = False,
) -> list[Tensor]:
    """sqrt(v / debias) + eps, m × 1 or 1 × n, with v moved on, of blocks that keep one v a group.

    Args:
        blocks: m × n, whose second moment is of one kind.
        stored: v of each, one value a group, changed in place.
        gradients: G of each.
        settings: Of their step.
        compiles: Whether columns' squares are summed by compiled code.
    """
    sums = compiled.column_square_sums if compiles else column_square_sums
    means = []
    for block, gradient in zip(blocks, gradients, strict=True):
        squares = row_square_sums(gradient) if block.output_axis == 0 else sums(gradient)
        if block.head_size > 1:
            squares = squares.view(-1, block.head_size).mean(dim=1)
        means.append(squares / gradient.shape[1 - block.output_axis])
    divisors = []
    for block, root in zip(blocks, move_shared_moments(stored, means, settings), strict=True):
        neurons = root.repeat_interleave(block.head_size) if block.head_size > 1 else root
        divisors.append(neurons.unsqueeze(block.output_axis - 1))
    return divisors


def move_shared_moments(stored: Sequence[Tensor], means: list[Tensor], settings: StepSettings) -> list[Tensor]:
    """sqrt(v / debias) + eps of each group, with v moved on by the means of its squares."""
    moments = [old.to(mean.dtype) for old, mean in zip(stored, means, strict=True)]
    torch._foreach_lerp_(moments, means, 1.0 - settings.beta2)
    _round_into(stored, moments)
    return _roots(moments, settings)


def _rows_of(divisor: Tensor, rows: Rows) -> Tensor:
    return divisor if divisor.shape[0] == 1 else divisor[rows]


def _roots(moments: list[Tensor], settings: StepSettings) -> list[Tensor]:
    roots = list(torch._foreach_sqrt(moments))
    if settings.second_debias != 1.0:
        torch._foreach_mul_(roots, settings.second_debias**-0.5)
    torch._foreach_add_(roots, settings.eps)
    return roots


def row_square_sums(gradient: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(gradient, dim=1, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norms.square_()


def column_square_sums(gradient: Tensor) -> Tensor:
    """torch's norm is as fast as reading along a row, and ten times slower than this loop down a column."""
    compute = torch.promote_types(gradient.dtype, torch.float32)
    total = gradient.new_zeros(gradient.shape[1], dtype=compute)
    for rows in row_chunks(gradient):
        total.add_(gradient[rows].to(compute).square().sum(dim=0))
    return total


def _round_into(stored: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Round what was worked out in a wider type to the type it is kept in; what is kept itself is there already."""
    for old, new in zip(stored, exact, strict=True):
        if new is not old:
            old.copy_(new)


def _low_rank_factors(batch: Sequence[Member], gradient: Tensor, settings: StepSettings) -> Factors:
    """A and B, so that m is A B and the gradient's part of it, with the stored factors moved on."""
    compute = gradient.dtype
    stored = [(member.state_tensor("momentum_left"), member.state_tensor("momentum_right")) for member in batch]
    carried = Factors(*(_stack(list(factors), compute) for factors in zip(*stored, strict=True)))
    found = _solve_factors(batch, pack(gradient, rows=batch[0].block.rank), carried, settings)
    # What will be carried, rounded to the state's type: the bias correction then makes up for the rounding as well.
    kept = Factors(*(factor.to(stored[0][0].dtype) for factor in found))
    mixed = mixed_factors(carried, Factors(*(factor.to(compute) for factor in kept)), settings.mixture)
    for factors, new in zip(zip(*stored, strict=True), kept, strict=True):
        torch._foreach_copy_(list(factors), [new] if len(batch) == 1 else list(new.unbind()))
    return mixed


def _stack(matrices: list[Tensor], compute: torch.dtype) -> Tensor:
    """One matrix as it is, several as a batch of them."""
    return (matrices[0] if len(matrices) == 1 else torch.stack(matrices)).to(compute)


def _solve_factors(batch: Sequence[Member], gradient: Tensor, carried: Factors, settings: StepSettings) -> Factors:
    """The new factors, found with the blocks turned to outputs × inputs, as the solvers want it."""
    turned = batch[0].block.output_axis == 1
    start = carried.transpose() if turned else carried
    like = start.right if len(batch) == 1 else start.right[0]

    def sketch() -> Tensor:
        names = [member.block.name for member in batch]
        return _stack([gaussian_sketch(settings.seed, settings.step, name, like) for name in names], like.dtype)

    found = SOLVERS[settings.solver].solve(
        Momentum(gradient.mT if turned else gradient, start, settings.beta1),
        iterations=settings.iterations,
        fresh=settings.fresh,
        sketch=sketch,
    )
    return found.transpose() if turned else found


def _descend(
    block: Block, weights: list[Tensor], numerators: list[Tensor], divisors: list[Tensor], settings: StepSettings
) -> list[Tensor]:
    """W - lr (clip(m / divisor) + weight_decay W), in place where W has the type of the arithmetic."""
    lr = settings.lr * (settings.momentum_free_lr_scale if block.first_moment is FirstMoment.NONE else 1.0)
    exact = [weight.to(numerator.dtype) for weight, numerator in zip(weights, numerators, strict=True)]
    if block.decays and settings.weight_decay != 0.0:
        torch._foreach_mul_(exact, 1.0 - lr * settings.weight_decay)
    if block.first_moment is FirstMoment.FULL:
        torch._foreach_addcdiv_(exact, numerators, divisors, value=-lr / settings.momentum_debias)
    else:
        shared = block.second_moment is not SecondMoment.ELEMENT  # then other rows may need the divisor again
        updates = [
            torch.div(numerator, divisor, out=None if shared else divisor)
            for numerator, divisor in zip(numerators, divisors, strict=True)
        ]
        if settings.clip is not None:
            for update in updates:
                update.clamp_(-settings.clip, settings.clip)
        torch._foreach_add_(exact, updates, alpha=-lr)
    return exact


def _write_weight(member: Member, rows: Rows, weight: Tensor, exact: Tensor, settings: StepSettings) -> None:
    """Round the new rows of a block once to the weight's type, to the nearest or by chance."""
    if not _rounds_by_chance(weight, settings):
        _round_into([weight], [exact])
        return
    key = rounding_key(settings.seed, settings.step, member.block.name)
    origin = [*(member.origin or (0,) * weight.ndim)]
    if isinstance(rows, slice):
        origin[0] += rows.start
    weight.copy_(round_stochastically(exact, key, origin=origin, whole_shape=member.block.shape))


def _rounds_by_chance(weight: Tensor, settings: StepSettings) -> bool:
    return settings.bf16_stochastic_round and weight.dtype is torch.bfloat16
