"""What other people's optimizers lack to keep this bench's promises, added without changing what they compute.

The promises are the contract suite's (tests/contract/test_optimizers.py); each class here says which one it restores.
"""

from collections.abc import Callable
from typing import Any, overload

import torch


class DecoupledDecay(torch.optim.Optimizer):
    """Adds decoupled weight decay, W <- W - lr wd W before the step, from a group's `decoupled_weight_decay`.

    For optimizers that have none (SM3) or only add wd W to the gradient (torch's SGD), so that every optimizer decays
    as AdamW does. Put it in front of the optimizer's class.
    """

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Decay, then step; return the closure's loss, if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            kept = 1.0 - float(group["lr"]) * group["decoupled_weight_decay"]
            for parameter in group["params"]:
                if parameter.grad is not None and kept != 1.0:
                    parameter.mul_(kept)
        super().step()
        return loss


class Copyable(torch.optim.Optimizer):
    """Keeps an optimizer's own attributes in deep copies.

    `torch.optim.Optimizer` copies groups and state alone, and those of `pytorch_optimizer` keep some of their settings
    (`maximize`, `clip_threshold`, …) beside them: their copies fail at the first step.
    """

    def __getstate__(self) -> dict[str, Any]:
        # Torch sets up its hooks again; `step` is there where a scheduler has wrapped the original's.
        own = {
            name: value
            for name, value in vars(self).items()
            if name != "step" and not name.startswith(("_optimizer_", "_zero_grad_", "_patch"))
        }
        return {**own, **super().__getstate__()}


class DecoupledSGD(DecoupledDecay, torch.optim.SGD):
    """torch's SGD, Nesterov's momentum included, with decoupled decay."""


def copyable(cls: type[torch.optim.Optimizer], *, decay: bool = False) -> Callable[..., torch.optim.Optimizer]:
    """A class of `pytorch_optimizer` with what it lacks; `decay` adds decoupled weight decay."""
    return type(cls.__name__, (Copyable, *((DecoupledDecay,) if decay else ()), cls), {})
