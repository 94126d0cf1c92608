"""One step of a batch of blocks: AdaPM's formulas (they stand at the top of `adapm.py`) on real tensors.

Blocks are updated together, because one call on several small blocks costs little more than on one. They share a batch
if the same formulas with the same numbers apply to them; low-rank blocks have the same shape as well, so that their
factors can be stacked. A batch is bounded: it is one block, or no larger than a piece (`devices.py`) and than the
largest block of the plan, so that the memory that a step needs for a while does not grow with a model's depth.

Everything elementwise is done by rows, so that no temporary is as large as a large block; gradients and weights are
views of the parameter's own. Arithmetic is in float32, or in float64 for float64 parameters. Nothing here waits for an
accelerator.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optim.adapm import compiled, second_moment
from optim.adapm.devices import OnRows, Rows, chunk_elements, row_chunks, times
from optim.adapm.low_rank import Factors, Momentum, add_product, gaussian_sketch, mixed_factors
from optim.adapm.options import StepSettings
from optim.adapm.solvers import SOLVERS
from optim.plan.blocks import Block, BlockPlan, FirstMoment, SecondMoment


class Member(NamedTuple):
    """One block of a parameter that has a gradient, and where its state is."""

    block: Block
    weight: Tensor
    """W, the block's part of the parameter."""
    gradient: Tensor
    """G, the block's part of the parameter's gradient."""
    state: dict[str, Tensor]
    """The parameter's state, under `Block.key`."""

    def state_tensor(self, name: str) -> Tensor:
        """A state tensor of the block."""
        return self.state[self.block.key(name)]


class Likeness(NamedTuple):
    """What blocks of one batch have in common."""

    first_moment: FirstMoment
    second_moment: SecondMoment
    state_dtype: torch.dtype
    decays: bool
    low_rank: tuple[tuple[int, ...], int, int] | None
    """Shape, rank and output axis, where the momentum is low rank."""


def likeness(block: Block) -> Likeness:
    """The batch that a block belongs to, among those of its parameter's type, device, group and step."""
    low_rank = block.first_moment is FirstMoment.LOW_RANK
    return Likeness(
        first_moment=block.first_moment,
        second_moment=block.second_moment,
        state_dtype=block.state_dtype,
        decays=block.decays,
        low_rank=(block.shape, block.rank, block.output_axis) if low_rank else None,
    )


def largest_block(plan: BlockPlan) -> int:
    """Elements of the plan's largest block."""
    return max((prod(block.shape) for block in plan), default=0)


def limit_of(weight: Tensor, *, largest: int) -> int:
    """How many elements of blocks like this one may be worked on at a time, where the largest has `largest`.

    Half as many where the weights are narrower than the arithmetic, which then needs copies of W and G as well.
    """
    narrow = weight.dtype.itemsize < torch.float32.itemsize
    return min(max(1, largest // 2 if narrow else largest), chunk_elements(weight.device))


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


@dataclass(frozen=True)
class Workspace:
    """What the batches of one step share."""

    largest: int
    """Elements of the plan's largest block."""
    compiles: bool = False
    """Whether large blocks are moved by compiled code (`compiled.py`)."""
    _numbers: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    def numbers_for(self, member: Member, settings: StepSettings, compute: torch.dtype) -> Tensor:
        """The numbers of a compiled step of blocks like this one, sent to their device once."""
        block, device = member.block, member.weight.device
        key = (settings, block.first_moment, block.decays, compute, device)
        if key not in self._numbers:
            self._numbers[key] = torch.tensor(_numbers(member, settings), dtype=compute).to(device, non_blocking=True)
        return self._numbers[key]


def update_batch(batch: Sequence[Member], settings: StepSettings, workspace: Workspace) -> None:
    """Move a batch of like blocks, and their state.

    Args:
        batch: Blocks that `likeness` finds alike; their weights W (m × n) and state are changed in place.
        settings: Of the parameters' group at the parameters' step.
        workspace: Of this step.
    """
    gradients = [member.gradient for member in batch]
    compute = torch.promote_types(batch[0].weight.dtype, torch.float32)
    if workspace.compiles and all(compiled.is_worth_compiling(member.weight) for member in batch):
        _move_compiled(batch, settings, compute, workspace)
        return
    momenta = _momenta(batch, settings, compute)
    quotients = second_moment.quotients(
        [member.block for member in batch],
        [member.state_tensor("exp_avg_sq") for member in batch],
        gradients,
        beta2=settings.beta2,
        eps=settings.eps,
        debias=settings.second_debias,
    )
    # A batch of several is no larger than a chunk (`split_into_batches`): the first block's rows are everybody's.
    for rows in row_chunks(gradients[0], limit_of(batch[0].weight, largest=workspace.largest)):
        pieces = [gradient[rows].to(compute) for gradient in gradients]
        updates = quotients(rows, pieces, momenta(rows, pieces))
        _descend(batch, [member.weight[rows] for member in batch], updates, settings)


def _move_compiled(batch: Sequence[Member], settings: StepSettings, compute: torch.dtype, workspace: Workspace) -> None:
    """As the rest of `update_batch`, a block at a time, with everything elementwise in one pass."""
    blocks, gradients = [member.block for member in batch], [member.gradient for member in batch]
    divisors: Sequence[Tensor | None] = [None] * len(batch)
    if blocks[0].second_moment is not SecondMoment.ELEMENT:
        divisors = second_moment.divisors(
            blocks,
            [member.state_tensor("exp_avg_sq") for member in batch],
            gradients,
            beta2=settings.beta2,
            eps=settings.eps,
            debias=settings.second_debias,
            compiles=True,
        )
    products = _products(batch, settings, compute)
    numbers = workspace.numbers_for(batch[0], settings, compute)
    for index, (member, divisor) in enumerate(zip(batch, divisors, strict=True)):
        weight = member.weight.detach()
        limit = weight.numel() if products is None else compiled.limit_of(weight, largest=workspace.largest)
        for rows in row_chunks(weight, limit):
            product = None if products is None else products(index, rows)
            if divisor is None:
                moment = member.state_tensor("exp_avg_sq")[rows]
                compiled.move_elements(weight[rows], member.gradient[rows], moment, product, numbers)
            else:
                at = divisor if divisor.shape[0] == 1 else divisor[rows]
                compiled.move_shared(weight[rows], member.gradient[rows], at, product, numbers)


def _products(
    batch: Sequence[Member], settings: StepSettings, compute: torch.dtype
) -> Callable[[int, Rows], Tensor] | None:
    """From a block's place in the batch, and rows of it, to what is added to the gradient in m; None for nothing."""
    first_moment = batch[0].block.first_moment
    if first_moment is FirstMoment.NONE:
        return None
    if first_moment is FirstMoment.FULL:
        averages = [member.state_tensor("exp_avg") for member in batch]
        return lambda index, rows: _full_momenta(
            [averages[index][rows]], [batch[index].gradient[rows].to(compute)], settings.beta1
        )[0]
    mixed = _low_rank_factors(batch, _stack([member.gradient for member in batch], compute), settings)
    if len(batch) == 1:
        return lambda index, rows: times(mixed.left[rows], mixed.right)
    return lambda index, rows: times(mixed.left[index][rows], mixed.right[index])


def _numbers(member: Member, settings: StepSettings) -> list[float]:
    """What a compiled step of blocks like this one multiplies with."""
    first_moment = member.block.first_moment
    full = first_moment is FirstMoment.FULL
    lr = settings.lr * (settings.momentum_free_lr_scale if first_moment is FirstMoment.NONE else 1.0)
    weights = {FirstMoment.FULL: 0.0, FirstMoment.NONE: 1.0, FirstMoment.LOW_RANK: settings.mixture.gradient}
    return compiled.numbers(
        gradient=weights[first_moment],
        product=1.0 / settings.momentum_debias if full else 1.0,
        beta2=settings.beta2,
        eps=settings.eps,
        debias=settings.second_debias,
        clip=None if full else settings.clip,
        decay=lr * settings.weight_decay if member.block.decays else 0.0,
        lr=lr,
    )


def _momenta(batch: Sequence[Member], settings: StepSettings, compute: torch.dtype) -> OnRows:
    """m by rows, with the stored momentum moved on; what it gives is not to be written to."""
    first_moment = batch[0].block.first_moment
    if first_moment is FirstMoment.NONE:
        return lambda rows, pieces: pieces
    if first_moment is FirstMoment.LOW_RANK:
        return _low_rank_momenta(batch, settings, compute)
    averages = [member.state_tensor("exp_avg") for member in batch]
    return lambda rows, pieces: _full_momenta([average[rows] for average in averages], pieces, settings.beta1)


def _full_momenta(stored: list[Tensor], gradients: list[Tensor], beta1: float) -> list[Tensor]:
    averages = [old.to(gradient.dtype) for old, gradient in zip(stored, gradients, strict=True)]
    torch._foreach_lerp_(averages, gradients, 1.0 - beta1)
    for old, new in zip(stored, averages, strict=True):
        if new is not old:
            old.copy_(new)
    return averages


def _low_rank_momenta(batch: Sequence[Member], settings: StepSettings, compute: torch.dtype) -> OnRows:
    gradient = _stack([member.gradient for member in batch], compute)
    left, right = _low_rank_factors(batch, gradient, settings)
    beta = settings.mixture.gradient
    if len(batch) == 1:
        return lambda rows, pieces: [times(left[rows], right).add_(pieces[0], alpha=beta)]
    together = add_product(gradient, left, right, beta=beta, alpha=1.0).unbind()
    return lambda rows, pieces: list(together)


def _low_rank_factors(batch: Sequence[Member], gradient: Tensor, settings: StepSettings) -> Factors:
    """A and B, so that m is A B and the gradient's part of it, with the stored factors moved on."""
    compute = gradient.dtype
    stored = [(member.state_tensor("momentum_left"), member.state_tensor("momentum_right")) for member in batch]
    carried = Factors(*(_stack(list(factors), compute) for factors in zip(*stored, strict=True)))
    found = _solve_factors(batch, gradient, carried, settings)
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


def _descend(batch: Sequence[Member], weights: list[Tensor], updates: list[Tensor], settings: StepSettings) -> None:
    """W <- W - lr (clip(u) + weight_decay W), rounded once to the weight's type; `updates` are overwritten."""
    lr, first_moment = settings.lr, batch[0].block.first_moment
    if first_moment is FirstMoment.FULL:
        if settings.momentum_debias != 1.0:
            torch._foreach_div_(updates, settings.momentum_debias)
    elif settings.clip is not None:
        for update in updates:
            update.clamp_(-settings.clip, settings.clip)
    if first_moment is FirstMoment.NONE:
        lr *= settings.momentum_free_lr_scale
    exact = [weight.to(update.dtype) for weight, update in zip(weights, updates, strict=True)]
    if batch[0].block.decays and settings.weight_decay != 0.0:
        torch._foreach_mul_(exact, 1.0 - lr * settings.weight_decay)
    torch._foreach_add_(exact, updates, alpha=-lr)
    for weight, new in zip(weights, exact, strict=True):
        if new is not weight:
            weight.copy_(new)
