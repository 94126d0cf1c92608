"""Every allocation of torch's allocator in a stretch of code, in order: what was allocated, when, and until when.

torch's profiler reports each of them on every device, compiled code and libraries included, so that nothing is sampled
or modelled. It costs about a tenth of the recorded code's time and nothing afterwards.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch

_LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
_SILENT: Final = "99"  # the profiler's library otherwise prints a line at each start and stop


@dataclass(kw_only=True)
class Allocation:
    """One block of memory; times are the profiler's, in nanoseconds."""

    address: int
    size_bytes: int
    start_ns: int
    end_ns: int | None = None
    """None while it lives."""

    def is_alive(self, at_ns: int) -> bool:
        """Whether it was held at that time."""
        return self.start_ns <= at_ns and (self.end_ns is None or at_ns < self.end_ns)


@dataclass(frozen=True, kw_only=True)
class Release:
    """A block was given back that had been allocated before the recording."""

    address: int
    size_bytes: int
    at_ns: int


@dataclass(kw_only=True)
class Recording:
    """What was recorded; filled when the recorded stretch ends."""

    allocations: list[Allocation] = field(default_factory=list)
    """In the order of their starts."""
    releases: list[Release] = field(default_factory=list)
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
        if size_bytes >= 0:
            living[address] = Allocation(address=address, size_bytes=size_bytes, start_ns=at_ns)
            recorded.allocations.append(living[address])
        elif address in living:
            living.pop(address).end_ns = at_ns
        else:
            recorded.releases.append(Release(address=address, size_bytes=-size_bytes, at_ns=at_ns))


def _events(tree: list[Any]) -> Iterator[Any]:
    """Every event of the profiler's tree, parents first."""
    waiting = list(tree)
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(event.children)
