"""Wrappers: what `torch.compile`, DDP and the like put around a module, which changes names and nothing else.

A block has the same name however its model is wrapped, so that plans, rules and sketches (which are seeded by names) do
not depend on it, and a run that was saved compiled goes on uncompiled.
"""

from collections.abc import Sequence
from functools import cache

TRANSPARENT = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Under which name a wrapper holds what it wraps: `torch.compile`, FSDP, activation checkpointing."""

_AROUND_ALL = "module"
"""DDP's name for it, which is too common a word to be one anywhere but at the root."""


def is_wrapped(path: Sequence[str]) -> bool:
    """Whether the module there is what its parent wraps; `path` are its plain names from the root, its own last."""
    return path[-1] in TRANSPARENT or list(path) == [_AROUND_ALL]


@cache
def plain_name(parameter: str) -> str:
    """A parameter's name without wrappers: `module._orig_mod.lm_head.weight` is `lm_head.weight`."""
    *path, own = parameter.split(".")
    plain: list[str] = []
    for name in path:
        if not is_wrapped([*plain, name]):
            plain.append(name)
    return ".".join([*plain, own])
