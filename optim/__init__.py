"""Optimizers: AdaPM, AdaPM-mini and the baselines, usable in anybody's training loop. They stand on torch alone.

The folder is installed twice under two names: as `optim` with the bench, and by its own `pyproject.toml` as `adapm`.
So everything in it imports relatively. Each public name is imported when it is first asked for, for `catalog` is read
by processes that have no torch.

    AdaPM, AdaPMMini               the optimizers of the paper
    build                          any optimizer of the catalog, by name
    entry, names                   what there is, with options and bounds; imports no torch
    plan_blocks, Rule              which block of a model keeps what
    Role, register_role            what the weights of another library are
    matrix_groups                  the lists of parameters that Muon, Dion and GaLore need
    state_bytes                    what an optimizer keeps, to the byte

Layers, each of which knows only those below: builder · catalog (its factories) · baselines · adapm · plan.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .adapm import AdaPM as AdaPM
    from .adapm import AdaPMMini as AdaPMMini
    from .builder import build as build
    from .catalog import entry as entry
    from .catalog import names as names
    from .plan import Role as Role
    from .plan import Rule as Rule
    from .plan import matrix_groups as matrix_groups
    from .plan import plan_blocks as plan_blocks
    from .plan import register_role as register_role
    from .state import state_bytes as state_bytes

__version__ = "0.1.0"

__all__ = [
    "AdaPM",
    "AdaPMMini",
    "Role",
    "Rule",
    "build",
    "entry",
    "matrix_groups",
    "names",
    "plan_blocks",
    "register_role",
    "state_bytes",
]

_MODULES = {
    "AdaPM": "adapm",
    "AdaPMMini": "adapm",
    "Role": "plan",
    "Rule": "plan",
    "build": "builder",
    "entry": "catalog",
    "matrix_groups": "plan",
    "names": "catalog",
    "plan_blocks": "plan",
    "register_role": "plan",
    "state_bytes": "state",
}


def __getattr__(name: str) -> object:
    """Return the public names, each from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *__all__})
