"""Somebody's optimizer: the sign of the momentum (arXiv 1802.04434, algorithm 2)."""

import torch
from torch import nn


class Signum(torch.optim.Optimizer):
    """w ← w − lr · sign(m), m ← beta · m + (1 − beta) · g; decoupled weight decay."""

    @torch.no_grad()
    def step(self, closure=None):
        """Take a step; returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter, group):
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        state["exp_avg"].lerp_(parameter.grad, 1 - group["beta"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(state["exp_avg"].sign(), alpha=-group["lr"])


class Sloppy(Signum):
    """Forgets its state on the way through a checkpoint."""

    def state_dict(self):
        """The groups without any state."""
        return {**super().state_dict(), "state": {}}


def signum(model: nn.Module, *, lr: float, beta: float, weight_decay: float) -> Signum:
    """Matrices decay, vectors do not."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return Signum(groups if trained else [], {"lr": lr, "beta": beta})


def sloppy(model: nn.Module, *, lr: float, beta: float, weight_decay: float) -> Sloppy:
    """Return an optimizer that decays everything."""
    return Sloppy(model.parameters(), {"lr": lr, "beta": beta, "weight_decay": weight_decay})
