"""A step on parameters that several processes share (`DTensor`s), exactly, without gathering a matrix.

Of each block a process holds a range of outputs, a range of inputs, or both (`Portion`). The products that the solvers
take of the momentum M, outputs × inputs, are sums over the axis that they contract, so that each process works out its
part and the sum is all that is exchanged. L is divided as the outputs are, R as the inputs are; what is not divided is
the same everywhere. One iteration of `subspace` exchanges

    sum over inputs     the squared lengths of R's rows (r), then X = R M^T (r × m)
    sum over outputs    X X^T and Q Q^T (r × r each), for Cholesky QR twice, then R = Q^T M (r × n)

and nothing over an axis that is whole. Second moments that processes have in common, per head or per output neuron, are
sums of a few numbers more.

The work on a block is a generator that yields each sum it needs and gets it back. All blocks run in step, and what they
yield in one round goes out together: a round is one all-reduce for each type of number and each group of processes.

Squares are summed in float64, where those of float32 do not underflow: nobody has to agree on a scale beforehand.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import ShardedParametersError
from ..plan.blocks import Block, FirstMoment, SecondMoment
from ..plan.sharding import Portion, is_distributed
from .groups import Group
from .low_rank import (
    Factors,
    Momentum,
    Sketch,
    are_negligible,
    are_weak,
    draw_sketch,
    inverse_of,
    second_factor,
    spanning_transform,
)
from .options import StepSettings
from .solvers import DENSE_SOLVER
from .step import (
    column_square_sums,
    keep_factors,
    momentum_of,
    move,
    move_shared_moment,
    read_factors,
    row_square_sums,
)

Groups: TypeAlias = "tuple[dist.ProcessGroup, ...]"
"""The processes to sum over, one group after the other; none if everything is here."""


class Request(NamedTuple):
    """A sum that a block needs."""

    part: Tensor
    """The summand of this process."""
    groups: Groups


Value = TypeVar("Value")
Exchange = Generator[Request, Tensor, Value]
"""Work on a block that ends in a value; it yields the sums that it needs, and is sent them."""


class SharedBlock(NamedTuple):
    """A block that several processes work on together."""

    group: Group
    """The part that is here, by itself."""
    gradient: Tensor
    settings: StepSettings


def check_sharded(parameters: Iterable[Tensor], group: Mapping[str, Any]) -> None:
    """Raise `ShardedParametersError` if one of them is sharded, and an option of their group needs whole ones."""
    if not any(is_distributed(parameter) for parameter in parameters):
        return
    if (solver := group["solver"]) == DENSE_SOLVER:
        raise ShardedParametersError(
            f"solver={solver!r} needs whole matrices, and FSDP2 or tensor parallelism has split them; take subspace"
        )
    if group["capturable"]:
        raise ShardedParametersError(
            "capturable=True needs whole matrices, and FSDP2 or tensor parallelism has split them; leave "
            "optimizer.step() outside the graph"
        )


def needs_exchange(block: Block, portion: Portion) -> bool:
    """Return whether the processes need sums from each other to move that block."""
    if not any(portion.groups):
        return False
    if block.first_moment is FirstMoment.LOW_RANK:
        return True
    if block.second_moment is SecondMoment.ELEMENT:
        return False
    return bool(portion.groups[1 - block.output_axis]) or block.head_size > 1


def update_together(shared: Sequence[SharedBlock]) -> None:
    """Move these blocks; every process that holds a part of one must call it with its own part of the same blocks, in
    the same order."""
    work: dict[tuple[int, str], Exchange[Any]] = {}
    for index, shared_block in enumerate(shared):
        if shared_block.group.block.second_moment is not SecondMoment.ELEMENT:
            work[index, "divisor"] = _divisor(shared_block)
        if shared_block.group.block.first_moment is FirstMoment.LOW_RANK:
            work[index, "factors"] = _factors(shared_block)
    outcomes = _run_together(work)
    for index, (group, gradient, settings) in enumerate(shared):
        mixed = None
        if (factors := outcomes.pop((index, "factors"), None)) is not None:
            mixed = keep_factors(group, read_factors(group), factors, settings)
        if gradient.numel() > 0:
            move(group, [gradient], settings, mixed, outcomes.pop((index, "divisor"), None))


def _run_together(work: Mapping[tuple[int, str], Exchange[Any]]) -> dict[tuple[int, str], Any]:
    outcomes: dict[tuple[int, str], Any] = {}
    answers: dict[tuple[int, str], Tensor | None] = dict.fromkeys(work)
    while answers:
        requests: dict[tuple[int, str], Request] = {}
        for key, answer in answers.items():
            try:
                # Asked for nothing, a generator begins.
                requests[key] = next(work[key]) if answer is None else work[key].send(answer)
            except StopIteration as end:
                outcomes[key] = end.value
        answers = dict(zip(requests, _all_reduce([*requests.values()]), strict=True))
    return outcomes


def _all_reduce(requests: Sequence[Request]) -> list[Tensor]:
    """Return the sums, in the order of the requests: one flat buffer for each group of processes and type."""
    buffers: dict[tuple[Groups, torch.dtype, torch.device], list[int]] = {}
    for index, (part, groups) in enumerate(requests):
        buffers.setdefault((groups, part.dtype, part.device), []).append(index)
    sums: dict[int, Tensor] = {}
    for (groups, _, _), indices in buffers.items():
        parts = [requests[index].part for index in indices]
        flat = torch.cat([part.reshape(-1) for part in parts])
        for group in groups:
            dist.all_reduce(flat, group=group)
        pieces = torch.split(flat, [part.numel() for part in parts])
        for index, part, piece in zip(indices, parts, pieces, strict=True):
            sums[index] = piece.view(part.shape)
    return [sums[index] for index in range(len(requests))]


def _total(part: Tensor, groups: Groups) -> Exchange[Tensor]:
    return (yield Request(part, groups)) if groups else part


def _divisor(shared: SharedBlock) -> Exchange[Tensor]:
    """sqrt(v / debias) + eps of the outputs that are here, with v moved on."""
    group, gradient, settings = shared
    block, portion, outputs = group.block, _portion(group), group.block.output_axis
    squares = (row_square_sums if outputs == 0 else column_square_sums)(gradient)
    groups = portion.groups[1 - outputs]
    heads = None
    if block.head_size > 1:
        # A head may lie on several processes, so that all of them keep all heads.
        own_range = portion.ranges[outputs]
        heads = torch.arange(own_range.start, own_range.stop, device=squares.device) // block.head_size
        squares = squares.new_zeros(block.shape[outputs] // block.head_size).index_add_(0, heads, squares)
        groups = (*groups, *portion.groups[outputs])
    total = yield from _total(squares.double(), groups)
    added = total.to(squares.dtype) * ((1.0 - settings.beta2) / (block.head_size * block.shape[1 - outputs]))
    root = move_shared_moment(group.state["exp_avg_sq"], added, settings)
    return (root if heads is None else root[heads]).unsqueeze(outputs - 1)


def _portion(group: Group) -> Portion:
    portion = group.slices[0].portion
    assert portion is not None
    return portion


def _factors(shared: SharedBlock) -> Exchange[Factors]:
    """L and R of M, outputs × inputs."""
    group, gradient, settings = shared
    block, portion = group.block, _portion(group)
    outputs, inputs = block.output_axis, 1 - block.output_axis
    momentum = momentum_of(group, [gradient], read_factors(group), settings)

    def sketch() -> Tensor:
        whole = momentum.carried.right.new_empty((block.rank, block.shape[inputs]))
        drawn = draw_sketch(settings.seed, settings.step, [block.name], whole, fresh=settings.fresh)
        return drawn[:, portion.ranges[inputs].start : portion.ranges[inputs].stop]

    among = {"outputs": portion.groups[outputs], "inputs": portion.groups[inputs]}
    iterations, fresh = settings.iterations, settings.fresh
    return (yield from subspace(momentum, **among, iterations=iterations, fresh=fresh, sketch=sketch))


def subspace(
    momentum: Momentum, *, outputs: Groups, inputs: Groups, iterations: int, fresh: bool, sketch: Sketch
) -> Exchange[Factors]:
    """Return the factors of `solvers.subspace` for this process's part, where M's outputs and inputs are divided among
    these."""
    rows = momentum.carried.right
    basis = momentum.carried.left.mT
    for k in range(iterations):
        start = yield from _start_rows(rows, inputs, fresh=fresh and k == 0, sketch=sketch)
        product = yield from _total(momentum.rows_times_transposed(start), inputs)
        basis = yield from _orthonormal_rows(product, outputs)
        rows = yield from _total(momentum.rows_times(basis), outputs)
    return Factors(basis.mT, rows)


def _start_rows(rows: Tensor, inputs: Groups, *, fresh: bool, sketch: Sketch) -> Exchange[Tensor]:
    """Return the rows of `low_rank.rows_to_iterate_from`."""
    if fresh:
        return sketch()
    squares = yield from _total(rows.double().square().sum(dim=-1, keepdim=True), inputs)
    even, weak = rows / squares.sqrt().to(rows.dtype), are_weak(squares, rows.dtype)
    return torch.where(weak, sketch(), even) if bool(weak.any()) else even


def _orthonormal_rows(rows: Tensor, outputs: Groups) -> Exchange[Tensor]:
    """Orthonormalise like `low_rank.orthonormal_rows`, rows that are divided: all processes have the same sums."""
    wide = rows.double()
    gram = yield from _total(wide @ wide.mT, outputs)
    negligible = are_negligible(gram.diagonal()[:, None], rows.dtype)
    basis = (spanning_transform(gram, negligible) @ wide).to(rows.dtype)
    again = yield from _total(basis @ basis.mT, outputs)
    return inverse_of(second_factor(again)) @ basis
