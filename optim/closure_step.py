"""The frame of `step()` that every optimizer here has in common: the closure first, then the update."""

from collections.abc import Callable
from typing import overload

import torch


class ClosureStep(torch.optim.Optimizer):
    """`step(closure)` as torch has it, around `_update_all`.

    An optimizer of its own overrides `_update_all`; a mixin in front of another class's `step` does its part around
    `super()._update_all()`, which ends in that `step`.
    """

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; return the closure's loss, if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update_all()
        return loss

    def _update_all(self) -> None:
        super().step()
