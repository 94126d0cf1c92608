"""The frame of every optimizer here: `step()`, the closure first, then the update; and which of torch's flags it takes.

`foreach` and `fused` are taken whatever they say and change nothing: like blocks move together and by fused kernels
wherever they can. The others ask for a step of another kind, and are refused where they are on and an optimizer has
no such step.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, overload

import torch

_WHY_NOT: Mapping[str, str] = {
    "maximize": "it descends; call backward() on the negated objective",
    "capturable": "a CUDA graph would repeat the numbers that the host made for its capture; leave optimizer.step() "
    "outside the graph",
    "differentiable": "it moves weights and state in place, and no gradient comes through; take torch's AdamW or SGD",
}
TORCH_FLAGS = ("foreach", "fused", *_WHY_NOT)
"""The flags of torch's own optimizers beside their formulas' numbers."""


def check_torch_flags(optimizer: str, options: Mapping[str, object], *, taken: Collection[str] = ()) -> None:
    """Raise ValueError for the first of torch's flags that is on and that the optimizer does not follow.

    Args:
        optimizer: Its name.
        options: What was asked for.
        taken: Flags that it follows.
    """
    for flag, reason in _WHY_NOT.items():
        if options.get(flag) and flag not in taken:
            raise ValueError(f"{optimizer} does not take {flag}={options[flag]!r}: {reason}")


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
        step: Any = super().step
        if getattr(step, "hooked", False):
            # Torch wraps the step of every class with an instance, to run hooks: they have run by now.
            step.__wrapped__(self)
        else:
            step()
