"""What a low rank drops of the momentum: the r_t of AdaPM's assumption 1.

For a block of which the optimizer keeps low-rank factors (AdaPM), it is the paper's own, algorithm 1, line 6:

    r = L R - m,    m = (1 - b1) G + b1 L' R'        L', R': the factors before the step

For any other block it is what the best approximation of its momentum at the probes' rank leaves out.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from optim.plan.blocks import Block, rank_of
from worker.probes.measures import truncate_rank
from worker.probes.momenta import Momenta

LEFT, RIGHT = "momentum_left", "momentum_right"


class Residues:
    """The residues of one optimizer's blocks."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], momenta: Momenta) -> None:
        self._optimizer, self._parameters, self._momenta = optimizer, parameters, momenta
        self._before: dict[str, tuple[Tensor, Tensor]] = {}
        self._beta1 = {
            parameter: group["betas"][0]
            for group in optimizer.param_groups
            for parameter in group["params"]
            if "betas" in group
        }

    def begin(self, block: Block) -> None:
        """Before the optimizer's step: remember the block's factors, if it has any."""
        if (factors := self._factors(block)) is not None:
            left, right = factors
            self._before[block.name] = (left.clone(), right.clone())

    def of(self, block: Block, rank_ratio: float) -> tuple[Tensor, Tensor]:
        """(r, m) of a block after the optimizer's step, while its gradient is still there; m × n each."""
        factors = self._factors(block)
        if factors is None:
            momentum = self._momenta.of(block).float()
            return truncate_rank(momentum, rank_of(block.shape, rank_ratio)) - momentum, momentum
        parameter = self._parameters[block.parameter]
        assert parameter.grad is not None
        beta1, gradient = self._beta1[parameter], block.view(parameter.grad).float()
        momentum = (1.0 - beta1) * gradient
        if (before := self._before.pop(block.name, None)) is not None:
            momentum = momentum + beta1 * _product(*before)
        return _product(*factors) - momentum, momentum

    def _factors(self, block: Block) -> tuple[Tensor, Tensor] | None:
        state: Mapping[str, Any] = self._optimizer.state.get(self._parameters[block.parameter], {})
        left, right = state.get(block.key(LEFT)), state.get(block.key(RIGHT))
        return None if left is None or right is None else (left, right)


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left.float() @ right.float()
