"""Memory known before training: the real model and the real optimizers of the catalog on `meta`, counted to the byte.

Parameters, gradients and optimizer state are what a training keeps at the least. Activations, and what the optimizer's
step takes for a while, are counted in `passes.py` where they are asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from warnings import catch_warnings, simplefilter

import torch
from torch import nn

from optim.builder import build
from optim.catalog import CATALOG, OptimizerEntry, Scalar, entries, entry
from optim.errors import MissingPackageError, ShardedParametersError
from optim.plan.blocks import BlockPlan
from optim.plan.rules import Rule, rule_of
from optim.plan.sharding import is_distributed
from optim.state import HasPlan, StateBytes, allocated_state_bytes
from worker.catalog.presets import preset
from worker.models import outline_model, parameter_counts
from worker.records.footprint import BASELINE, BlockSlice, Footprint, OptimizerFootprint, PassMemory, PlannedBlock
from worker.spec.parts import Precision

# What code that was not written for `meta` raises there: no value can be read, some operators know no shapes.
_META_FAULTS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError)


def footprint(
    model: str,
    optimizers: Sequence[str] | None = None,
    options: Mapping[str, Scalar] | None = None,
    rules: Sequence[str] = (),
    ranks: int = 1,
    *,
    precision: Precision | None = None,
    sequence_length_tokens: int | None = None,
    with_blocks: bool = False,
) -> Footprint:
    """Count what training that preset keeps under each optimizer; seconds, of which libraries take most to load, and
    with a precision some more for each optimizer.

    Args:
        model: A preset's name.
        optimizers: Names of the catalog; None for all.
        options: Given to every optimizer that has such an option.
        rules: Given to every optimizer that has a block plan: `*.mlp.*.weight=rank:8,per:neuron`.
        ranks: Processes among which FSDP2 divides the model; what is counted is the largest one's.
        precision: Count the passes in it, and the optimizers' steps, too; for one process.
        sequence_length_tokens: Of the passes; None is as long as the model's positions.
        with_blocks: Name the blocks of every optimizer that has a block plan; for one process.

    Raises:
        KeyError: no preset has that name.
        UnknownOptimizerError: no entry has one of those names.
        OptionError: an option is out of its bounds.
        RuleError: a rule has another form, fits no block, or asks of one what it cannot keep.
    """
    plan_rules = [rule_of(text) for text in rules]
    chosen = entries() if optimizers is None else tuple(entry(name) for name in optimizers)
    with _outline(model, ranks) as shared:
        parameters, _ = parameter_counts(shared)
        local_parameters = [p.to_local() if is_distributed(p) else p for p in shared.parameters()]
        usages = tuple(
            _optimizer_footprint(model, shared, optimizer, dict(options or {}), plan_rules, with_blocks=with_blocks)
            for optimizer in chosen
        )
        baseline = next((usage for usage in usages if usage.optimizer == BASELINE), None)
        if baseline is None:
            baseline = _optimizer_footprint(model, shared, entry(BASELINE), {})
    length = sequence_length_tokens or preset(model).max_positions
    passes: tuple[PassMemory, ...] = ()
    unknown_because = None
    if precision is not None:
        try:
            passes, usages = _count_step(model, precision, length, usages, plan_rules)
        except _META_FAULTS as error:
            unknown_because = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return Footprint(
        model=model,
        ranks=ranks,
        parameters=parameters,
        parameter_bytes=sum(p.numel() * p.element_size() for p in local_parameters),
        gradient_bytes=sum(p.numel() * p.element_size() for p in local_parameters if p.requires_grad),
        optimizers=usages,
        baseline_bytes=baseline.state_bytes,
        precision=precision,
        sequence_length_tokens=None if precision is None else length,
        passes=passes,
        passes_unknown_because=unknown_because,
    )


def _count_step(
    model: str, precision: Precision, length: int, usages: tuple[OptimizerFootprint, ...], rules: Sequence[Rule]
) -> tuple[tuple[PassMemory, ...], tuple[OptimizerFootprint, ...]]:
    """Return (the passes, the same optimizers with the transient memory of their steps)."""
    from worker.footprint.passes import StepCounter  # tensors without storage, a second to load

    count = StepCounter(model)
    passes, steps = count.passes(precision, length), []
    for usage in usages:
        candidate, transient = entry(usage.optimizer), None
        if usage.state_bytes is not None:
            with suppress(*_META_FAULTS), catch_warnings():
                simplefilter("ignore")
                transient = count.transient_bytes(candidate, usage.options, rules if candidate.has_plan else ())
        steps.append(usage.model_copy(update={"transient_bytes": transient}))
    return passes, tuple(steps)


@contextmanager
def _outline(model: str, ranks: int) -> Iterator[nn.Module]:
    """Yield the model's outline; of several ranks the first one's part, in a group that exchanges nothing."""
    outline = outline_model(model)
    if ranks == 1:
        yield outline
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers torch's backend `fake`

    from worker.distributed.sharding import shard_model  # FSDP, a second to load

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        shard_model(outline, torch.device("cpu"), ranks)
        yield outline
    finally:
        torch.distributed.destroy_process_group()


def planned_blocks(plan: BlockPlan) -> tuple[PlannedBlock, ...]:
    """Return the plan as records, in the order of the model's parameters."""
    return tuple(
        PlannedBlock(
            block=block.name,
            parameter=block.parameter,
            index=block.index,
            slice=BlockSlice(axis=part.axis, start=part.start, length=part.length) if (part := block.part) else None,
            shape=block.shape,
            kind=block.kind,
            first_moment=block.first_moment,
            second_moment=block.second_moment,
            rank=block.rank,
            state_dtype=str(block.state_dtype).removeprefix("torch."),
            state_bytes=block.state_bytes,
        )
        for block in plan
    )


def _optimizer_footprint(
    model: str,
    shared: nn.Module,
    candidate: OptimizerEntry,
    options: dict[str, Scalar],
    rules: Sequence[Rule] = (),
    *,
    with_blocks: bool = False,
) -> OptimizerFootprint:
    known_options = {name: value for name, value in options.items() if candidate.option(name) is not None}
    sharded = torch.distributed.is_initialized()
    try:
        if sharded and (fault := candidate.sharding_fault(known_options)) is not None:
            raise ShardedParametersError(fault)
        held, plan = _count_state(model, shared, candidate, known_options, rules)
    except (MissingPackageError, ShardedParametersError, *_META_FAULTS) as error:
        return OptimizerFootprint(
            optimizer=candidate.name,
            title=candidate.title,
            options=known_options,
            state_bytes=None,
            unknown_because=str(error)
            if isinstance(error, ShardedParametersError)
            else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
        )
    return OptimizerFootprint(
        optimizer=candidate.name,
        title=candidate.title,
        options=known_options,
        state_bytes=held.total_bytes,
        counter_bytes=held.counter_bytes,
        state_by_block=dict(held.by_block),
        blocks=planned_blocks(plan) if plan and with_blocks else (),
    )


def _count_state(
    model: str, shared: nn.Module, candidate: OptimizerEntry, options: dict[str, Scalar], rules: Sequence[Rule]
) -> tuple[StateBytes, BlockPlan | None]:
    """Return (state, the block plan that it follows)."""
    sharded, shipped = torch.distributed.is_initialized(), candidate in CATALOG
    # One of an installed package may ask anything of a model, and may do otherwise for each parameter.
    trained = shared if shipped or sharded else outline_model(model)
    with catch_warnings():
        # A library that warns about `meta` says nothing about training.
        simplefilter("ignore")
        used = rules if candidate.has_plan else ()
        optimizer = build(candidate.name, trained, lr=candidate.learning_rate, options=options, rules=used)
        held = allocated_state_bytes(optimizer, trained, by_shape=shipped and not sharded)
        return held, optimizer.plan if isinstance(optimizer, HasPlan) else None
