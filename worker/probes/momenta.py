"""The momentum of a block, whoever keeps it: the optimizer, or else the probes themselves.

    M = beta1 M + (1 - beta1) G

An optimizer that keeps a full first moment (`exp_avg`, of the parameter's or the block's own shape) is asked for it.
For any other parameter a moving average is kept here, in float32: one more tensor of the parameter's size.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from optim.plan.blocks import Block


class Momenta:
    """The momenta of some parameters of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], beta1: float) -> None:
        self._optimizer, self._parameters, self._beta1 = optimizer, parameters, beta1
        self.own: dict[str, Tensor] = {}
        """Parameter name → moving average, where the optimizer keeps none."""

    @torch.no_grad()
    def take(self, blocks: Mapping[str, tuple[Block, ...]]) -> None:
        """Take the gradients of a step into the averages, before the optimizer's step.

        What an optimizer keeps is known after its first step; until then everything is averaged here.
        """
        for name, parameter in self._parameters.items():
            if all(self._keeps(block, parameter) for block in blocks[name]):
                self.own.pop(name, None)
            elif parameter.grad is not None:
                average = self.own.setdefault(name, torch.zeros_like(parameter, dtype=torch.float32))
                average.lerp_(parameter.grad.float(), 1.0 - self._beta1)

    def of(self, block: Block) -> Tensor:
        """The momentum of a block, m × n, after the optimizer's step; not to be written to."""
        parameter = self._parameters[block.parameter]
        if not self._keeps(block, parameter):
            return block.view(self.own[block.parameter])
        kept = _plain(self._state(block, parameter))
        return kept if kept.shape == block.shape else block.view(kept)

    def _keeps(self, block: Block, parameter: Tensor) -> bool:
        state = self._state(block, parameter)
        return isinstance(state, Tensor) and state.shape in (block.shape, parameter.shape)

    def _state(self, block: Block, parameter: Tensor) -> Any:
        state: Mapping[str, object] = self._optimizer.state.get(parameter, {})
        return state.get(block.key("exp_avg"), state.get("exp_avg"))


def _plain(tensor: Any) -> Tensor:
    """The tensor itself, or what a quantised one stands for: no part of such can be looked at."""
    quantised: Any = tensor if is_traceable_wrapper_subclass(tensor) else None
    plain: Tensor = tensor if quantised is None else quantised.dequantize()
    return plain
