"""The memory that a call takes for a while: the peak of its allocations above those before it.

On a CPU every allocation and release that torch's allocator reports to its profiler is added up; on CUDA it is the
allocator's own peak. State that the call leaves behind counts as well, so call once before measuring.
"""

from collections.abc import Callable
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile


def peak_transient_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Bytes above the start at the highest point of `call`."""
    if device.type == "cuda":
        return _cuda_peak(call, device)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = (event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(accumulate(changes), default=0)


def _cuda_peak(call: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    base_bytes = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - base_bytes
