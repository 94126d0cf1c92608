"""Hugging Face's models, imported without torchao: the one place that imports what they are built on.

Where torchao is installed, transformers loads it beside its models, for quantised checkpoints, which no run has: a
third of a second for each process, and warnings of kernels for other devices on every training's output. Optimizers
that need torchao import it themselves (`optim/baselines/low_bit.py`).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hide_package(package: str) -> Iterator[None]:
    """As if `package` were not installed, for what is imported in the block; nothing where it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own word for "there is none"
    try:
        yield
    finally:
        del sys.modules[package]


with _hide_package("torchao"):
    from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
