"""The momentum of a block, whoever keeps it, the optimizer or else the probes; and what a low rank drops of it.

    M = beta1 M + (1 - beta1) G

An optimizer that keeps a full first moment (`exp_avg`, of the parameter's or the block's own shape) is asked for it.
For any other parameter a moving average is kept here, in float32: one more tensor of the parameter's size.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from optim.plan.blocks import Block, rank_of
from worker.probes.measures import truncate_rank


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

    def momentum(self, block: Block) -> Tensor:
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


LEFT, RIGHT = "momentum_left", "momentum_right"


class Residues:
    """What a low rank drops of the momenta of one optimizer's blocks: the r_t of AdaPM's assumption 1.

    For a block of which the optimizer keeps low-rank factors (AdaPM), it is the paper's own, algorithm 1, line 6:

        r = L R - m,    m = (1 - b1) G + b1 L' R'        L', R': the factors before the step

    For any other block it is what the best approximation of its momentum at the probes' rank leaves out.
    """

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

    def residue(self, block: Block, rank_ratio: float) -> tuple[Tensor, Tensor]:
        """(r, m) of a block after the optimizer's step, while its gradient is still there; m × n each."""
        factors = self._factors(block)
        if factors is None:
            momentum = self._momenta.momentum(block).float()
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
