"""An optimizer that is looked at, and what it means that it keeps a promise."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from optim.builder import build
from optim.catalog import entry
from optim.catalog.records import OptimizerEntry

USUAL_RATE = 3e-3


class BrokenPromiseError(Exception):
    """The optimizer does not do what training loops rely on, or what its entry claims."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An optimizer that is looked at."""

    name: str
    """The name in the catalog."""
    lr: float = USUAL_RATE
    """A rate at which a few dozen steps teach the tiny models something."""
    coasts: bool = False
    """Whether weights may move at rate 0, as they do where momentum is of steps, or where averages catch up."""

    @property
    def entry(self) -> OptimizerEntry:
        """The entry of the catalog."""
        return entry(self.name)

    def build_on(self, model: nn.Module, **options: object) -> torch.optim.Optimizer:
        """Return a fresh optimizer on that model."""
        return build(self.name, model, lr=self.lr, options=options)

    def build_without_decay(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return a fresh optimizer without weight decay on that model."""
        return self.build_on(model, **({} if self.entry.option("weight_decay") is None else {"weight_decay": 0.0}))


Promise = Callable[[Subject], None]
"""A promise: its docstring states it; it raises `BrokenPromiseError` if it is broken."""


def require_promise(is_kept: bool, otherwise: str) -> None:
    """Raise `BrokenPromiseError` with `otherwise` unless the promise was kept."""
    if not is_kept:
        raise BrokenPromiseError(otherwise)


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Name → the weights as they are now."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def list_names(names: set[str]) -> str:
    """Return some of the names, for a message."""
    shown = sorted(names)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
