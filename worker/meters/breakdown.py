"""The parts of a step's memory at its highest moment: parameters, gradients, optimizer state, activations.

The last micro-batch of a step and its update are recorded: forward, backward, clipping, `optimizer.step()`. What was
there before is known by address (the tensors of model and optimizer), what came in between by its recorded life:

    gradient         its memory is a parameter's `grad` when the backward pass is over
    optimizer state  it is the optimizer's when the step is over
    activation       allocated in the forward pass and alive at its end
    other            all else

torch's profiler reports each allocation on every device, compiled code and libraries included, so that nothing is
sampled or modelled. It slows the recorded code down, and nothing afterwards.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import torch

from optim.plan.sharding import is_distributed
from optim.state import state_tensors
from worker.meters.phases import Phase, mark
from worker.records.result import MemoryBreakdown

_LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
_SILENT: Final = "99"  # the profiler's library otherwise prints a line at each start and stop


@dataclass(kw_only=True)
class Allocation:
    """A block of memory; times are the profiler's, in nanoseconds."""

    address: int
    size_bytes: int
    """Below zero of one that was there before the recording, and was given back at its start."""
    start_ns: int
    end_ns: int | None = None
    """None while it lives."""

    def is_alive(self, at_ns: int) -> bool:
        """Return whether it was held at that time."""
        return self.start_ns <= at_ns and (self.end_ns is None or at_ns < self.end_ns)


@dataclass(kw_only=True)
class Recording:
    """A recording; filled when the recorded stretch ends."""

    allocations: list[Allocation] = field(default_factory=list)
    """The allocations in the order of their starts."""
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name of a `torch.profiler.record_function` → (start, end) of its last use."""


@contextmanager
def record_allocations(device: torch.device, marks: tuple[str, ...] = ()) -> Iterator[Recording]:
    """Record the allocations on `device` of what runs inside, and when the marked parts of it ran."""
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    recorded = Recording()
    # Not with acc_events, which makes Python's objects of all events at the end: longer than the rest of a short run.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        yield recorded
    assert profile.profiler is not None
    results: Any = profile.profiler.kineto_results
    _fill(recorded, results.experimental_event_tree(), device, marks)


def _fill(recorded: Recording, tree: list[Any], device: torch.device, marks: tuple[str, ...]) -> None:
    allocation_tag = torch._C._profiler._EventType.Allocation
    blocks = []
    for event in _events(tree):
        if event.tag == allocation_tag:
            if event.extra_fields.device.type == device.type and event.extra_fields.device.index == device.index:
                blocks.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
        elif event.name in marks:
            span = (event.start_time_ns, event.end_time_ns)
            recorded.marks[event.name] = max(recorded.marks.get(event.name, span), span)
    living: dict[int, Allocation] = {}
    for at_ns, address, size_bytes in sorted(blocks, key=lambda block: block[0]):
        if size_bytes < 0 and address in living:
            living.pop(address).end_ns = at_ns
            continue
        recorded.allocations.append(Allocation(address=address, size_bytes=size_bytes, start_ns=at_ns))
        if size_bytes >= 0:
            living[address] = recorded.allocations[-1]


def _events(tree: list[Any]) -> Iterator[Any]:
    """Yield every event of the profiler's tree, parents first."""
    waiting = list(tree)
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(event.children)


class BreakdownPart(StrEnum):
    """The parts of a breakdown."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    OTHER = "other"


Storages = dict[int, int]
"""Address → bytes."""


@dataclass(kw_only=True)
class ObservedStep:
    """An observed step; pure, so that it can be divided without a device."""

    before: dict[BreakdownPart, Storages]
    """The storages at the start of the recording."""
    unnamed_bytes: int = 0
    """The bytes in use beyond that: a GPU's allocator knows them, a CPU's does not."""
    gradients: Storages = field(default_factory=dict)
    """The gradients at the end of the backward pass."""
    state: Storages = field(default_factory=dict)
    """The state at the end of the step."""
    recorded: Recording = field(default_factory=Recording)

    def highest_ns(self) -> int:
        """Return the first moment at which the most memory was held; 0 where that was before anything was allocated."""
        blocks = list(self._counted())
        changes = [(block.start_ns, block.size_bytes) for block in blocks]
        changes += [(block.end_ns, -block.size_bytes) for block in blocks if block.end_ns is not None]
        held = highest = highest_ns = 0
        for at_ns, change in sorted(changes):
            held += change
            if held > highest:
                highest, highest_ns = held, at_ns
        return highest_ns

    def parts(self, at_ns: int) -> dict[BreakdownPart, int]:
        """Return the bytes of every part at that moment."""
        parts = dict.fromkeys(BreakdownPart, 0)
        for part, storages in self.before.items():
            parts[part] += sum(storages.values())
        parts[BreakdownPart.OTHER] += self.unnamed_bytes
        # Gradients that lie in memory from before the step: DDP's buffers.
        allocated = {block.address for block in self.recorded.allocations if block.size_bytes >= 0}
        gradient_bytes = sum(
            size
            for address, size in self.gradients.items()
            if address not in allocated and self._find_part_before(address) is None
        )
        parts[BreakdownPart.GRADIENTS] += gradient_bytes
        parts[BreakdownPart.OTHER] -= gradient_bytes if self.unnamed_bytes else 0
        for block in self._counted():
            if block.is_alive(at_ns):
                parts[self._part(block)] += block.size_bytes
        return parts

    def phase(self, at_ns: int) -> Phase:
        """Return the phase of that moment; clipping, between backward and optimizer, counts to the backward pass."""
        marks = self.recorded.marks
        if (update := marks.get(mark(Phase.OPTIMIZER))) is not None and at_ns >= update[0]:
            return Phase.OPTIMIZER
        return Phase.BACKWARD if at_ns >= marks[mark(Phase.BACKWARD)][0] else Phase.FORWARD

    def _part(self, block: Allocation) -> BreakdownPart:
        """Return the purpose of an allocation of the step, or of a release."""
        if block.size_bytes < 0:
            return self._find_part_before(block.address) or BreakdownPart.OTHER
        marks = self.recorded.marks
        if block.address in self.gradients and block.is_alive(marks[mark(Phase.BACKWARD)][1]):
            return BreakdownPart.GRADIENTS
        if block.address in self.state and block.end_ns is None:
            return BreakdownPart.OPTIMIZER_STATE
        return BreakdownPart.ACTIVATIONS if block.is_alive(marks[mark(Phase.FORWARD)][1]) else BreakdownPart.OTHER

    def _counted(self) -> Iterator[Allocation]:
        """Return allocations, and what was given back of those counted when the recording began."""
        for block in self.recorded.allocations:
            if block.size_bytes >= 0 or self.unnamed_bytes or self._find_part_before(block.address):
                yield block

    def _find_part_before(self, address: int) -> BreakdownPart | None:
        return next((part for part, storages in self.before.items() if address in storages), None)


class BreakdownMeter:
    """Records steps; `result` is about the newest one."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        more: Sequence[torch.Tensor] = (),
    ) -> None:
        """`more`: tensors that are neither the model's nor the optimizer's, and stay: averaged weights."""
        self._model, self._optimizer, self._device, self._more = model, optimizer, device, more
        self._observed = ObservedStep(before={})

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record what runs inside: forward, backward, then `note_gradients`, clipping and update."""
        self._observed = self._stock()
        with record_allocations(self._device, tuple(mark(phase) for phase in Phase)) as self._observed.recorded:
            yield
        self._observed.state = self._storages(state_tensors(self._optimizer))

    def note_gradients(self) -> None:
        """Note where the gradients lie, before the optimizer may take them away."""
        self._observed.gradients = self._storages(self._gradients())

    def result(self, step: int, micro_batch_sequences: int) -> MemoryBreakdown:
        """Return the breakdown of the recorded step, which was the `step`-th."""
        at_ns = self._observed.highest_ns()
        parts = self._observed.parts(at_ns)
        return MemoryBreakdown(
            step=step,
            phase=self._observed.phase(at_ns),
            micro_batch_sequences=micro_batch_sequences,
            peak_bytes=sum(parts.values()),
            **{f"{part}_bytes": size_bytes for part, size_bytes in parts.items()},
        )

    def _stock(self) -> ObservedStep:
        """Return the tensors before the step; a storage that several tensors share is the first part's."""
        stock = {
            BreakdownPart.PARAMETERS: self._storages(self._model.parameters()),
            BreakdownPart.GRADIENTS: self._storages(self._gradients()),
            BreakdownPart.OPTIMIZER_STATE: self._storages(state_tensors(self._optimizer)),
            BreakdownPart.OTHER: self._storages([*self._model.buffers(), *self._more]),
        }
        addresses: set[int] = set()
        for part, storages in stock.items():
            stock[part] = {address: size for address, size in storages.items() if address not in addresses}
            addresses |= set(storages)
        named_bytes = sum(sum(storages.values()) for storages in stock.values())
        cuda = self._device.type == "cuda"
        unnamed_bytes = torch.cuda.memory_allocated(self._device) - named_bytes if cuda else 0
        return ObservedStep(before=stock, unnamed_bytes=unnamed_bytes)

    def _gradients(self) -> Iterator[torch.Tensor]:
        return (p.grad for p in self._model.parameters() if p.grad is not None)

    def _storages(self, tensors: Iterable[torch.Tensor]) -> Storages:
        local_tensors = (tensor.to_local() if is_distributed(tensor) else tensor for tensor in tensors)
        storages = (tensor.untyped_storage() for tensor in local_tensors if tensor.device == self._device)
        return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}
