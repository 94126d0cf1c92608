"""The momentum of a block, whoever keeps it: the optimizer, or else the probes themselves.

    M = beta1 M + (1 - beta1) G

An optimizer that keeps a full first moment (`exp_avg`, of the parameter's or the block's own shape) is asked for it.
For any other parameter a moving average is kept here, in float32: one more tensor of the parameter's size.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from optim.blocks import Block


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
            if all(self._kept(block, parameter) is not None for block in blocks[name]):
                self.own.pop(name, None)
            elif parameter.grad is not None:
                average = self.own.setdefault(name, torch.zeros_like(parameter, dtype=torch.float32))
                average.lerp_(parameter.grad.float(), 1.0 - self._beta1)

    def of(self, block: Block) -> Tensor:
        """The momentum of a block, m × n, after the optimizer's step; not to be written to."""
        kept = self._kept(block, self._parameters[block.parameter])
        return kept if kept is not None else block.view(self.own[block.parameter])

    def _kept(self, block: Block, parameter: Tensor) -> Tensor | None:
        state: Mapping[str, object] = self._optimizer.state.get(parameter, {})
        whole, of_block = state.get("exp_avg"), state.get(block.key("exp_avg"))
        if isinstance(of_block, Tensor) and of_block.shape == block.shape:
            return of_block
        if isinstance(whole, Tensor) and whole.shape == parameter.shape:
            return block.view(whole)
        return None
