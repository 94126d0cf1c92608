"""Where a step takes another way on an accelerator than on a CPU, it asks here, and nowhere else.

    CPU                                              accelerator
    blocks that fail are told by looking at values   nobody looks: the host would have to wait (`low_rank.py`)
    chunks that fit into a cache (`rows.py`)         chunks of 64 MiB
    products by oneDNN (`products.py`)               torch's own
    torch's fused AdamW for full momentum            the formulas (`fused_adam.py`)
    compiled for large models (`compiled_step.py`)   compiled wherever there is a compiler

`simulated` has the CPU take the accelerator's ways, so that a machine without one can show that they are right.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_simulations = 0


def is_accelerator(device: torch.device) -> bool:
    """Whether that device is to be treated as an accelerator."""
    return device.type != "cpu" or is_simulated()


def is_simulated() -> bool:
    """Whether the CPU stands in for an accelerator now."""
    return _simulations > 0


@contextmanager
def simulated() -> Iterator[None]:
    """Within, in all threads, the CPU takes an accelerator's ways; what would be compiled runs as it is."""
    global _simulations
    _simulations += 1
    try:
        yield
    finally:
        _simulations -= 1
