"""One step of a batch of blocks: AdaPM's formulas (they stand at the top of `adapm.py`) on real tensors.

    v <- b2 v + (1 - b2) mean(G * G)        the mean over everything that shares one value

is Adam's second moment, one value a parameter, or Adam-mini's, whose second-version partition (Zhang et al.,
"Adam-mini: Use Fewer Learning Rates To Gain More", arXiv 2406.16793) follows the output neurons: a row of an embedding,
an output neuron of a projection, or all neurons of one head. Stored as a vector of one value a group;
`Block.output_axis` says which axis of the block those groups divide.

Blocks are updated together, because one call on several small blocks costs little more than on one. A batch is B blocks
of one shape to which the same formulas with the same numbers apply, as one tensor B × m × n: a view where they are a
stack of experts, whose state is kept in one tensor too, copies where they are parameters of their own. It is bounded:
it is one block, or no larger than a piece (`devices.py`) and than the largest block of the plan, or 1 MiB, so that the
memory that a step needs for a while does not grow with a model's depth. Blocks with both of Adam's moments in the
weights' own type are not batched: torch's AdamW kernel takes all of them in one call, whatever their shapes. Nor are
those that our kernel moves, and low-rank blocks on an accelerator go in groups (`low_rank_groups.py`).

Everything elementwise is done by rows, so that no temporary is as large as a large block; gradients and weights are
views of the parameter's own. It is done by torch's operators, by compiled code for large blocks (`compiled.py`), or on
CUDA by one kernel (`kernels.py`): `update_batch` chooses. Arithmetic is in float32, or in float64 for float64
parameters. Nothing here waits for an accelerator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod
from types import ModuleType
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ..plan.blocks import Block, BlockPlan, FirstMoment, SecondMoment
from . import compiled
from .devices import Rows, cache_tensors, chunk_elements, constant, pack, row_chunks, times
from .eight_bit import EightBit, Stored, pair_with_scales, tensors_of
from .low_rank import Factors, Momentum, add_product, gaussian_sketch, mixed_factors
from .options import StepSettings
from .rounding import round_stochastically, rounding_key
from .solvers import SOLVERS

_Kept = TypeVar("_Kept", Tensor, Stored)


class Member(NamedTuple):
    """One block, or some of a stack, of a parameter that has a gradient: B × m × n where it is several."""

    blocks: Sequence[Block]
    weight: Tensor
    """W, their part of the parameter."""
    gradient: Tensor
    """G, their part of the parameter's gradient."""
    state: Mapping[str, Stored]
    """What is kept for them, by the names of `Block.state_shapes`; scales are with their codes."""
    origin: tuple[int, ...] = ()
    """Where in the block this part of it begins, for each dimension; empty where all of it is here."""

    @property
    def block(self) -> Block:
        """Any of them: they are alike."""
        return self.blocks[0]


@dataclass(frozen=True, eq=False)
class Run:
    """Like blocks that lie one behind the other in one parameter: experts of a stack, or a block by itself."""

    blocks: tuple[Block, ...]

    @cached_property
    def likeness(self) -> tuple[object, ...]:
        """The batch that they belong to, among those of their parameter's type, device, group and step."""
        return _likeness(self.blocks[0])

    @cached_property
    def _keys(self) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(block.key(name) for block in self.blocks) for name in self.blocks[0].state_shapes}

    def new_state(self, device: torch.device) -> Iterator[tuple[str, Tensor]]:
        """(key, tensor) of everything that is kept for them, zero: views of one tensor where they are several."""
        for name, shape in self.blocks[0].state_shapes.items():
            keys, dtype = self._keys[name], self.blocks[0].state_dtypes[name]
            if len(keys) == 1:
                yield keys[0], torch.zeros(shape, dtype=dtype, device=device)
            else:
                yield from zip(keys, torch.zeros((len(keys), *shape), dtype=dtype, device=device), strict=True)

    def member(self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor]) -> Member:
        """Them in their parameter, whose state under `Block.key` is given."""
        kept = {
            name: state[keys[0]] if len(keys) == 1 else _whole_stack(state, keys) for name, keys in self._keys.items()
        }
        return Member(self.blocks, self._view(parameter), self._view(gradient), pair_with_scales(kept))

    def _view(self, tensor: Tensor) -> Tensor:
        first = self.blocks[0]
        if len(self.blocks) == 1:
            return first.view(tensor)
        assert first.index is not None
        stack, part = tensor.narrow(0, first.index, len(self.blocks)), first.part
        return stack if part is None else stack.narrow(part.axis + 1, part.start, part.length)


def _whole_stack(state: dict[str, Tensor], keys: Sequence[str]) -> Tensor:
    """The tensor that these are all of, in order; made, where they have come apart (a loaded or copied state)."""
    whole = state[keys[0]]._base
    if whole is None or len(whole) != len(keys) or any(state[key]._base is not whole for key in keys):
        whole = torch.stack([state[key] for key in keys])
        state.update(zip(keys, whole, strict=True))
    return whole


def find_runs(blocks: Iterable[Block]) -> tuple[Run, ...]:
    """The blocks of one parameter as runs, in order."""
    runs: list[list[Block]] = []
    latest: dict[object, list[Block]] = {}
    for block in blocks:
        kind = (_likeness(block), block.part)
        run = latest.get(kind)
        if run is None or block.index is None or run[-1].index != block.index - 1:
            run = latest[kind] = []
            runs.append(run)
        run.append(block)
    return tuple(Run(tuple(run)) for run in runs)


def _likeness(block: Block) -> tuple[object, ...]:
    moments = (block.first_moment, block.second_moment, block.state_dtype, block.decays)
    return (*moments, block.shape, block.rank, block.output_axis, block.head_size)


def largest_block(plan: BlockPlan) -> int:
    """Elements of the plan's largest block."""
    return max((prod(block.shape) for block in plan), default=0)


def limit_of(weight: Tensor, *, largest: int, compiles: bool = False) -> int:
    """How many elements of blocks like this one may be worked on at a time, where the largest has `largest`.

    Half as many where torch's operators, not compiled code, work on weights that are narrower than the arithmetic: they
    need copies of W and G as well.
    """
    narrow = weight.dtype.itemsize < torch.float32.itemsize and not compiles
    limit = min(allowed_elements(largest), chunk_elements(weight.device, compiles=compiles))
    return max(1, limit // 2 if narrow else limit)


def allowed_elements(largest: int) -> int:
    """How many elements of float32 a step may hold for a while, where the largest block has `largest`."""
    return max(largest, _ALWAYS_ELEMENTS)


_ALWAYS_ELEMENTS = 2**18
"""1 MiB of float32: so much memory a step may take however small the model is; less would be many small batches."""


def split_into_batches(members: Iterable[Member], *, largest: int) -> Iterator[list[Member]]:
    """Cut a list of like members into batches, in order. A stack is a batch, or several."""
    batch: list[Member] = []
    elements = 0
    for member in members:
        limit, count = limit_of(member.weight, largest=largest), len(member.blocks)
        size = member.weight.numel() // count
        if count > 1:
            yield from ([piece] for piece in cut_stack(member, max(1, limit // size)))
            continue
        if batch and elements + size > limit:
            yield batch
            batch, elements = [], 0
        batch.append(member)
        elements += size
    if batch:
        yield batch


def cut_stack(member: Member, length: int) -> Iterator[Member]:
    """The member in pieces of so many blocks at most; one by one as blocks by themselves."""
    count = len(member.blocks)
    if count <= length:
        yield member
        return
    for start in range(0, count, length):
        stop = min(start + length, count)
        chosen = slice(start, stop) if stop > start + 1 else start
        state = {name: tensor[chosen] for name, tensor in member.state.items()}
        yield Member(member.blocks[start:stop], member.weight[chosen], member.gradient[chosen], state)


def suits_fused_kernel(member: Member) -> bool:
    """Whether torch's own AdamW kernel does all that these blocks need: full moments, of one type, without gaps."""
    weight, block = member.weight, member.block
    return (
        block.first_moment is FirstMoment.FULL
        and block.second_moment is SecondMoment.ELEMENT
        and block.state_dtype is weight.dtype
        and member.gradient.dtype is weight.dtype
        and weight.device.type in _FUSED_DEVICES
        and all(tensor.is_contiguous() for tensor in (weight, member.gradient, *tensors_of(member.state).values()))
    )


_FUSED_DEVICES = ("cpu", "cuda")


def update_fused(members: Sequence[Member], settings: StepSettings) -> None:
    """Move blocks of any shapes by torch's own AdamW kernel, in one call; `suits_fused_kernel` has chosen them."""
    device = members[0].weight.device
    for decays in (True, False):
        chosen = [member for member in members if member.block.decays is decays]
        if not chosen:
            continue
        # Its 1 - b^t is 1 at infinity: without debiasing.
        step = constant(settings.step if settings.debiases else inf, torch.float32, device)
        if settings.debiases and settings.counter is not None:
            step = settings.counter
        torch._fused_adamw_(
            [member.weight for member in chosen],
            [member.gradient for member in chosen],
            [tensors_of(member.state)["exp_avg"] for member in chosen],
            [tensors_of(member.state)["exp_avg_sq"] for member in chosen],
            [],
            [step] * len(chosen),
            lr=settings.lr if isinstance(settings.lr, float) else settings.lr.float(),  # on CUDA it reads no other type
            beta1=settings.beta1,
            beta2=settings.beta2,
            weight_decay=settings.weight_decay if decays else 0.0,
            eps=settings.eps,
            amsgrad=False,
            maximize=False,
        )


def update_alike(members: Sequence[Member], settings: StepSettings, *, largest: int, compiles: bool = False) -> None:
    """Move any number of like blocks, and their state; arguments as for `update_batch`."""
    if compiles and members[0].block.first_moment is not FirstMoment.LOW_RANK and kernels_for(members[0]) is not None:
        singles = members if len(members) == 1 else [single for member in members for single in cut_stack(member, 1)]
        update_batch(singles, settings, largest=largest, compiles=compiles)
        return
    for batch in split_into_batches(members, largest=largest):
        update_batch(batch, settings, largest=largest, compiles=compiles)


def update_batch(
    batch: Sequence[Member],
    settings: StepSettings,
    *,
    largest: int,
    compiles: bool = False,
    momentum: Factors | None = None,
    squares: Tensor | None = None,
) -> None:
    """Move a batch of like blocks, and their state.

    Args:
        batch: Blocks of one likeness, as `split_into_batches` has them: their weights W (m × n) and state are changed
            in place. Of any size where our kernel moves them.
        settings: Of the parameters' group at the parameters' step.
        largest: Elements of the plan's largest block.
        compiles: Whether large blocks are moved by compiled code.
        momentum: Of low-rank blocks where it has been found before: A and B, so that m is A B and the gradient's part.
        squares: The sums of squares of each output of G, where they have.
    """
    block = batch[0].block
    shares = block.second_moment is not SecondMoment.ELEMENT
    low_rank = block.first_moment is FirstMoment.LOW_RANK
    stored = [member.state["exp_avg_sq"] for member in batch]
    kernels = kernels_for(batch[0]) if compiles else None
    if kernels is not None:
        if low_rank and momentum is None:
            momentum = _factors_of(batch, join([member.gradient for member in batch]), settings)
        if shares and squares is None and (low_rank or block.output_axis == 1 or block.head_size > 1):
            gradients = [single.gradient for member in batch for single in cut_stack(member, 1)]
            squares = kernels.square_sums(gradients, axis=block.output_axis)
        divisor = None
        # What is None here, v of each row of a block that is not of low rank, is found on the way.
        if shares and squares is not None:
            divisor = shared_divisor(block, stored, squares if len(squares) > 1 else squares[0], settings)
        _move_by_kernel(kernels, batch, settings, momentum, divisor)
        return
    gradient = join([member.gradient for member in batch])
    divisor = None
    if shares:
        divisor = shared_divisor(block, stored, _square_sums(block, gradient, compiles=compiles), settings)
    if low_rank and momentum is None:
        momentum = _factors_of(batch, gradient, settings)
    move_batch(batch, gradient, settings, momentum, divisor, largest=largest, compiles=compiles)


def move_batch(
    batch: Sequence[Member],
    gradient: Tensor,
    settings: StepSettings,
    factors: Factors | None,
    divisor: Tensor | None,
    *,
    largest: int,
    compiles: bool,
) -> None:
    """The elementwise part of `update_batch`: moments of one value an element, and weights.

    Args:
        batch: As for `update_batch`.
        gradient: G of all of them, B × m × n, or m × n of a single block.
        settings: As for `update_batch`.
        factors: A and B of low-rank blocks, so that m is A B and the gradient's part.
        divisor: Of blocks that keep one v a group.
        largest: As for `update_batch`.
        compiles: As for `update_batch`.
    """
    block = batch[0].block
    compute = torch.promote_types(gradient.dtype, torch.promote_types(batch[0].weight.dtype, torch.float32))
    if compiles and (kernels := kernels_for(batch[0])) is not None:
        _move_by_kernel(kernels, batch, settings, factors, divisor)
        return
    if compiles and compiled.is_worth_compiling(block.shape, gradient.device, *_touched_tensors(batch)):
        _move_compiled(batch, gradient, settings, factors, divisor, compute, largest)
        return
    # Several blocks are no larger than a chunk (`split_into_batches`).
    whole = len(batch) > 1 or len(batch[0].blocks) > 1
    for rows in [...] if whole else row_chunks(gradient, limit_of(batch[0].weight, largest=largest)):
        piece = _rows_of(gradient, rows).to(compute)
        if factors is not None:
            numerator = _numerator(piece, Factors(_rows_of(factors.left, rows), factors.right), settings)
        elif block.first_moment is FirstMoment.FULL:
            stored = [_rows_of(member.state["exp_avg"], rows) for member in batch]
            numerator = full_momentum(stored, piece, settings.beta1)
        else:
            numerator = piece
        if divisor is not None:
            root = divisor if divisor.shape[-2] == 1 else _rows_of(divisor, rows)
        else:
            root = element_divisor([_rows_of(member.state["exp_avg_sq"], rows) for member in batch], piece, settings)
        weights = [_rows_of(member.weight, rows) for member in batch]
        exact = _descend(block, weights, numerator, root, settings)
        if _rounds_by_chance(weights[0], settings):
            for member, new in zip(batch, [exact] if len(batch) == 1 else exact.unbind(), strict=True):
                _write_by_chance(member, rows, new, settings)
        else:
            round_into(weights, exact)


def _touched_tensors(batch: Sequence[Member]) -> list[object]:
    """What a step reads of such blocks, and what it writes to."""
    element = batch[0].block.second_moment is SecondMoment.ELEMENT
    return [
        tensor
        for member in batch
        for tensor in (member.weight, member.gradient, *([member.state["exp_avg_sq"]] if element else []))
    ]


def kernels_for(member: Member) -> ModuleType | None:
    """`kernels.py`, where its kernel moves such blocks."""
    kernels = compiled.kernels_for(member.weight.device)
    block = member.block
    # Factors are read for it, other state it reads itself.
    moved = [block.state_dtypes[name] for name in ("exp_avg", "exp_avg_sq") if name in block.state_dtypes]
    types = (member.weight.dtype, member.gradient.dtype, *moved)
    suits = kernels is not None and len(block.shape) == 2 and all(map(kernels.is_supported, types))
    return kernels if suits else None


def _move_by_kernel(
    kernels: ModuleType,
    batch: Sequence[Member],
    settings: StepSettings,
    momentum: Factors | None,
    divisor: Tensor | None,
) -> None:
    """As the loop above, all blocks at once; v that is not behind the divisor is found on the way."""
    first, block = batch[0], batch[0].block
    full = block.first_moment is FirstMoment.FULL
    singles = [single for member in batch for single in cut_stack(member, 1)]
    chances = None
    if _rounds_by_chance(first.weight, settings):
        keys = [rounding_key(settings.seed, settings.step, single.block.name) for single in singles]
        chances = kernels.Chances(keys, first.origin, block.shape[1])
    kept = [tensors_of(single.state) for single in singles]
    blocks = [
        [single.weight.detach() for single in singles],
        [single.gradient for single in singles],
        [state["exp_avg"] for state in kept] if full else [],
        [state["exp_avg_sq"] for state in kept] if divisor is None else [],
    ]
    numbers = _numbers(settings, block.first_moment, block.decays, torch.float32, first.weight.device)
    precision = settings.matmul_precision
    kernels.move(kernels.Blocks(*blocks), momentum, divisor, numbers, chances=chances, precision=precision)


def _move_compiled(
    batch: Sequence[Member],
    gradient: Tensor,
    settings: StepSettings,
    factors: Factors | None,
    divisor: Tensor | None,
    compute: torch.dtype,
    largest: int,
) -> None:
    """As the loop above, a block at a time, with everything elementwise in one pass."""
    first_moment = batch[0].block.first_moment
    numbers = _numbers(settings, first_moment, batch[0].block.decays, compute, gradient.device)
    singles = [single for member in batch for single in cut_stack(member, 1)]
    for index, member in enumerate(singles):
        weight = member.weight.detach()
        by_chance = _rounds_by_chance(weight, settings)
        whole = first_moment is FirstMoment.NONE and not by_chance  # nothing is worked out beside it
        limit = weight.numel() if whole else limit_of(weight, largest=largest, compiles=True)
        for rows in row_chunks(weight, limit):
            product = moment = root = None
            if factors is not None:
                left, right = factors if len(singles) == 1 else (factors.left[index], factors.right[index])
                product = times(_rows_of(left, rows), right)
            elif first_moment is FirstMoment.FULL:
                slope = _rows_of(member.gradient, rows).to(compute)
                product = full_momentum([_rows_of(member.state["exp_avg"], rows)], slope, settings.beta1)
            if divisor is None:
                kept = _rows_of(member.state["exp_avg_sq"], rows)
                moment = kept.read(compute) if isinstance(kept, EightBit) else kept
            else:
                root = divisor if len(singles) == 1 else divisor[index]
                root = root if root.shape[0] == 1 else _rows_of(root, rows)
            exact = _rows_of(weight, rows).to(compute) if by_chance else _rows_of(weight, rows)
            compiled.move(exact, _rows_of(member.gradient, rows), product, moment, root, numbers)
            if moment is not None:
                round_into([kept], moment)
            if by_chance:
                _write_by_chance(member, rows, exact, settings)


def _numbers(
    settings: StepSettings, first_moment: FirstMoment, decays: bool, compute: torch.dtype, device: torch.device
) -> Tensor:
    """The numbers of a step of such blocks, as `compiled.move` and `kernels.move` have them."""
    full = first_moment is FirstMoment.FULL
    lr = settings.lr * (settings.momentum_free_lr_scale if first_moment is FirstMoment.NONE else 1.0)
    weights = {FirstMoment.FULL: 0.0, FirstMoment.NONE: 1.0, FirstMoment.LOW_RANK: settings.mixture.gradient}
    numbers = (
        weights[first_moment],
        1.0 / settings.momentum_debias if full else 1.0,
        settings.beta2,
        1.0 - settings.beta2,
        settings.second_debias**-0.5,
        settings.eps,
        inf if full or settings.clip is None else settings.clip,
        1.0 - (lr * settings.weight_decay if decays else 0.0),
        lr,
        1.0 - settings.beta1,
    )
    if settings.counter is None:
        return _on_device(numbers, compute, device)
    key = (first_moment, decays, compute, device)
    if key not in settings.on_device:
        parts = [one if isinstance(one, Tensor) else constant(one, torch.float64, device) for one in numbers]
        settings.on_device[key] = torch.stack(parts).to(compute)
    return settings.on_device[key]


@cache_tensors(maxsize=64)
def _on_device(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sent to their device once, and not again at steps of the same numbers."""
    return torch.tensor(numbers, dtype=dtype).to(device, non_blocking=True)


def full_momentum(stored: Sequence[Stored], gradient: Tensor, beta1: float) -> Tensor:
    """m = b1 m + (1 - b1) G in place; not to be written to."""
    average = read(stored, gradient.dtype).lerp_(gradient, 1.0 - beta1)
    round_into(stored, average)
    return average


def element_divisor(stored: Sequence[Stored], gradient: Tensor, settings: StepSettings) -> Tensor:
    """sqrt(v / debias) + eps where one v is kept for each element, with v moved on; it may be written to."""
    moment = read(stored, gradient.dtype)
    moment.mul_(settings.beta2).addcmul_(gradient, gradient, value=1.0 - settings.beta2)
    round_into(stored, moment)
    return _root(moment, settings)


def shared_divisor(block: Block, stored: Sequence[Stored], squares: Tensor, settings: StepSettings) -> Tensor:
    """sqrt(v / debias) + eps, m × 1 or 1 × n, with v moved on, of blocks that keep one v a group.

    Args:
        block: Any of them.
        stored: v of each, one value a group, changed in place.
        squares: The sums of squares of each output of G, of one block or a batch of them.
        settings: Of their step.
    """
    if block.head_size > 1:
        squares = squares.view(*squares.shape[:-1], -1, block.head_size).mean(dim=-1)
    root = move_shared_moment(stored, squares * ((1.0 - settings.beta2) / block.shape[1 - block.output_axis]), settings)
    neurons = root.repeat_interleave(block.head_size, dim=-1) if block.head_size > 1 else root
    return neurons.unsqueeze(-1 if block.output_axis == 0 else -2)


def _square_sums(block: Block, gradient: Tensor, *, compiles: bool) -> Tensor:
    """The sums of squares of each output of G, of one block or a batch of them."""
    if block.output_axis == 0:
        return row_square_sums(gradient)
    if compiles and gradient.ndim == 2 and compiled.is_worth_compiling(block.shape, gradient.device, gradient):
        return compiled.column_square_sums(gradient)
    return column_square_sums(gradient)


def move_shared_moment(stored: Sequence[Stored], added: Tensor, settings: StepSettings) -> Tensor:
    """sqrt(v / debias) + eps of each group, with v <- b2 v + added: (1 - b2) times the mean of its squares.

    Once v is infinite it stays so, and the group at rest, as in Adam; `lerp` would make NaN of it.
    """
    moment = read(stored, added.dtype)
    torch.add(added, moment, alpha=settings.beta2, out=moment)
    round_into(stored, moment)
    return _root(moment, settings)


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


def join(parts: Sequence[Tensor]) -> Tensor:
    """The only one as it is, several as a batch of them."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts))


def read(stored: Sequence[Stored], dtype: torch.dtype) -> Tensor:
    """State of one block, or of several as a batch, in that type: itself where it is a single one of that type."""
    return join([one.read(dtype) if isinstance(one, EightBit) else one for one in stored]).to(dtype)


def round_as_stored(stored: Sequence[Stored], exact: Tensor) -> Tensor:
    """What would be read, in the type of `exact`, after `round_into`."""
    first = stored[0]
    return first.round_trip(exact) if isinstance(first, EightBit) else exact.to(first.dtype).to(exact.dtype)


def round_into(stored: Sequence[Stored], exact: Tensor) -> None:
    """Write back what was worked out in a copy: of several, or in a wider type than is kept."""
    plain = [one for one in stored if isinstance(one, Tensor)]
    if len(plain) < len(stored):
        for one, new in zip(stored, [exact] if len(stored) == 1 else exact.unbind(), strict=True):
            if isinstance(one, EightBit):
                one.write(new)
    elif len(plain) > 1:
        torch._foreach_copy_(plain, list(exact.unbind()))
    elif plain[0] is not exact:
        plain[0].copy_(exact)


def _factors_of(batch: Sequence[Member], gradient: Tensor, settings: StepSettings) -> Factors:
    """A and B, so that m is A B and the gradient's part of it, with the stored factors moved on."""
    compute = torch.promote_types(batch[0].weight.dtype, torch.float32)
    lefts = [member.state["momentum_left"] for member in batch]
    rights = [member.state["momentum_right"] for member in batch]
    carried = Factors(read(lefts, compute), read(rights, compute))
    found = _solve_factors(batch, gradient.to(compute), carried, settings)
    # What will be carried, rounded to the state's type: the bias correction then makes up for the rounding as well.
    kept = Factors(round_as_stored(lefts, found.left), round_as_stored(rights, found.right))
    mixed = mixed_factors(carried, kept, settings.mixture)
    round_into(lefts, kept.left)
    round_into(rights, kept.right)
    return mixed


def _solve_factors(batch: Sequence[Member], gradient: Tensor, carried: Factors, settings: StepSettings) -> Factors:
    """The new factors, found with the blocks turned to outputs × inputs, as the solvers want it."""
    block = batch[0].block
    turned = block.output_axis == 1
    start = carried.transpose() if turned else carried
    like = start.right if start.right.ndim == 2 else start.right[0]
    packed = pack(gradient, rows=block.rank)

    def sketch() -> Tensor:
        names = [block.name for member in batch for block in member.blocks]
        return join([gaussian_sketch(settings.seed, settings.step, name, like) for name in names])

    found = SOLVERS[settings.solver].solve(
        Momentum(packed.mT if turned else packed, start, settings.beta1, settings.matmul_precision),
        iterations=settings.iterations,
        fresh=settings.fresh,
        sketch=sketch,
    )
    return found.transpose() if turned else found


def _numerator(gradient: Tensor, factors: Factors, settings: StepSettings) -> Tensor:
    """m = A B and the gradient's part."""
    weight = settings.mixture.gradient
    if gradient.ndim > 2:
        return add_product(gradient, *factors, beta=weight, alpha=1.0)
    return times(factors.left, factors.right).add_(gradient, alpha=weight)


def _descend(
    block: Block, weights: Sequence[Tensor], numerator: Tensor, divisor: Tensor, settings: StepSettings
) -> Tensor:
    """W - lr (clip(m / divisor) + weight_decay W); in place where a single W has the type of the arithmetic."""
    lr = settings.lr * (settings.momentum_free_lr_scale if block.first_moment is FirstMoment.NONE else 1.0)
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


def _write_by_chance(member: Member, rows: Rows, exact: Tensor, settings: StepSettings) -> None:
    """Round new rows of a block, or all of some blocks, to bfloat16 by chance."""
    if len(member.blocks) > 1:
        for single, new in zip(cut_stack(member, 1), exact, strict=True):
            _write_by_chance(single, ..., new, settings)
        return
    weight = _rows_of(member.weight, rows)
    origin = [*(member.origin or (0,) * weight.ndim)]
    if isinstance(rows, slice):
        origin[0] += rows.start
    key = rounding_key(settings.seed, settings.step, member.block.name)
    weight.copy_(round_stochastically(exact, key, origin=origin, whole_shape=member.block.shape))
