"""The layout of a step, made once: the parameters, their groups, counters and copies of weights.

A layout holds as long as the same parameters have gradients, lie where they lay, and have the state that it has.
Whether it does is asked at every step, as one list of numbers; how it came about is not.

Weights in a narrower type than float32 may be trained by a float32 copy (`master_weights`): a step moves the copy, and
rounds it to the weight. Weights that somebody else changes between two steps (a loaded checkpoint, a tied
initialization) are followed: an element that is no longer its copy rounded is taken over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..plan.blocks import BlockPlan, FirstMoment, SecondMoment
from ..plan.sharding import is_distributed, local_view, portion_of
from . import devices
from .groups import Group, ParamSlice, hold_state, hold_together, make_units, runs
from .sharded import processes_sharing_moments

STEP, MASTER_WEIGHT = "step", "master_weight"
"""The names of a parameter's counter and of the copy of its weight in its state."""
LAID_OUT_BY = ("master_weights", "bf16_stochastic_round", "capturable")
"""Options that a layout depends on."""


def has_master_weight(group: Mapping[str, Any], parameter: Tensor) -> bool:
    """Return whether a parameter of that group is trained by a copy."""
    return bool(group["master_weights"]) and parameter.dtype.itemsize < torch.float32.itemsize


class Moving(NamedTuple):
    """A parameter that moves in a step."""

    options: Mapping[str, Any]
    """The options of its group."""
    name: str
    parameter: Tensor
    state: dict[str, Tensor]


@dataclass(eq=False)
class Bucket:
    """The groups of parameters that have their options, step, type and device in common."""

    options: Mapping[str, Any]
    counters: list[Tensor]
    """The counters of all parameters, in one tensor; or in one for each."""
    counter: Tensor
    """The counter of any of them."""
    fused: list[Group]
    units: list[list[Group]]
    """The last has the blocks that several processes have to move together, each by itself."""
    step: int = 0
    """The counters' value when they were last read: equal ones stay equal in a graph."""

    def count(self) -> int:
        """Move the counters on by one, and read one, which waits for a device."""
        torch._foreach_add_(self.counters, 1.0)
        if not devices.is_capturing():
            self.step = int(self.counter)
        return self.step


class Layout:
    """The tensors that move in a step."""

    def __init__(
        self,
        plan: BlockPlan,
        moving: Sequence[Moving],
        *,
        compiles: bool,
    ) -> None:
        """Put what moves into groups, and allocate its state.

        Args:
            plan: With the blocks of all parameters.
            moving: In the order of the gradients that a step is given.
            compiles: Whether compiled code may move blocks.
        """
        self.masters: list[tuple[Tensor, Tensor]] = []
        """Weights, and the copies that are trained in their place."""
        alike: dict[object, list[tuple[int, Tensor]]] = {}
        for position, record in enumerate(moving):
            trained = self._trained_weight(record)
            counted = record.state.get(STEP)
            step = 0.0 if counted is None or counted.is_meta else float(counted)
            alike.setdefault((id(record.options), step, trained.dtype, trained.device), []).append((position, trained))
        self.buckets = [_make_bucket(plan, moving, members, compiles) for members in alike.values()]
        for record in moving:  # in the order of the plan, as it is printed and saved
            planned = [
                block.key(name) for block in plan.parameter_blocks.get(record.name, ()) for name in block.state_shapes
            ]
            for key in (*planned, MASTER_WEIGHT):
                if key in record.state:
                    record.state[key] = record.state.pop(key)
        self.identity: list[object] = []
        """The facts that the groups go by, as `AdaPM` finds them."""
        self._counters = [counter for bucket in self.buckets for counter in bucket.counters]
        self._versions, self._counted = list[int](), _versions(self._counters)

    def counts_alone(self) -> bool:
        """Return whether only this layout has changed the step counters since its last step."""
        return _versions(self._counters) == self._counted

    def follow_weights(self) -> None:
        """Let copies take over the elements of weights that are no longer the copy, rounded."""
        for (parameter, master), version in zip_longest(self.masters, self._versions):
            if parameter._version != version:
                master.copy_(torch.where(master.to(parameter.dtype) == parameter, master, parameter.to(torch.float32)))

    def write_back(self) -> None:
        """Round every copy to its weight, after a step, and see the counters as it leaves them."""
        for parameter, master in self.masters:
            parameter.copy_(master)
        self._versions = _versions([parameter for parameter, _ in self.masters])
        self._counted = _versions(self._counters)

    def _trained_weight(self, record: Moving) -> Tensor:
        """Return the weight that a step moves: the parameter's copy, created at its first use, or else the
        parameter."""
        if not has_master_weight(record.options, record.parameter):
            record.state.pop(MASTER_WEIGHT, None)
            return record.parameter.detach()
        if MASTER_WEIGHT not in record.state:
            record.state[MASTER_WEIGHT] = record.parameter.detach().to(torch.float32)
        self.masters.append((record.parameter, record.state[MASTER_WEIGHT]))
        return record.state[MASTER_WEIGHT]


def _make_bucket(
    plan: BlockPlan, moving: Sequence[Moving], members: Sequence[tuple[int, Tensor]], compiles: bool
) -> Bucket:
    first, largest = moving[members[0][0]], plan.largest
    # On the CPU, as torch's own counters: reading it must not wait for the device.
    device = first.parameter.device if first.options["capturable"] else torch.device("cpu")
    owners = [(moving[position].state, STEP) for position, _ in members]
    like = torch.empty(0, dtype=torch.float32, device=device)
    counters = [hold_together(owners[run.start : run.stop], (), like) for run in runs(owners)]
    fused: dict[bool, list[ParamSlice]] = {True: [], False: []}
    slices, shared = list[ParamSlice](), list[ParamSlice]()
    for position, trained in members:
        record = moving[position]
        if record.parameter.numel() == 0 < plan.elements.get(record.name, 0):
            continue  # somebody has taken its memory away
        for block in plan.parameter_blocks.get(record.name, ()):
            view: Callable[[Tensor], Tensor] | None = None
            portion = None
            if is_distributed(record.parameter):
                portion = portion_of(block, record.parameter)
                view = partial(local_view, block, portion, record.parameter)
            elif block.index is not None or block.part is not None:
                view = block.view
            part = ParamSlice(block, position, trained if view is None else view(trained), record.state, view, portion)
            is_low_rank = block.first_moment is FirstMoment.LOW_RANK
            if portion is not None and (
                (is_low_rank and any(portion.groups)) or processes_sharing_moments(block, portion)
            ):
                shared.append(part)
            elif part.weight.numel() == 0:
                hold_state([part])
            elif _suits_fused_kernel(part, record):
                fused[part.block.decays].append(part)
            else:
                slices.append(part)
    make = partial(make_units, largest=largest, compiles=compiles)
    shared_unit = [group for part in shared for unit in make([part]) for group in unit]
    return Bucket(
        options=first.options,
        counters=counters,
        counter=first.state[STEP],
        fused=[Group(parts, hold_state(parts, by_address=True)) for parts in fused.values() if parts],
        units=[*make(slices), *([shared_unit] if shared else [])],
    )


_FUSED_DEVICES = ("cpu", "cuda")


def _suits_fused_kernel(part: ParamSlice, record: Moving) -> bool:
    """Return whether torch's own AdamW kernel does all that these blocks need: full moments, of one type, without
    gaps."""
    block, weight = part.block, part.weight
    return (
        block.first_moment is FirstMoment.FULL
        and block.second_moment is SecondMoment.ELEMENT
        and block.state_dtype is weight.dtype is record.parameter.dtype
        and weight.device.type in _FUSED_DEVICES
        and weight.is_contiguous()
        and not (record.options["bf16_stochastic_round"] and weight.dtype is torch.bfloat16)
    )


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor._version for tensor in tensors]
