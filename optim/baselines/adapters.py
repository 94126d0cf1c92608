"""Adapters that let other people's optimizers keep this bench's promises without changing their steps.

The promises are the contract suite's (tests/contract/optim/test_optimizers.py); each class here says which one it
restores.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from ..absent import absent
from ..closure_step import ClosureStep

BETAS = ("beta1", "beta2", "beta3")
"""Options for the entries of `betas`, since an option is a scalar."""


class DecoupledDecay(ClosureStep):
    """Adds decoupled weight decay, W <- W - lr wd W before the step, from a group's `decoupled_weight_decay`.

    For optimizers that have none (SM3) or only add wd W to the gradient (torch's SGD), so that every optimizer decays
    as AdamW does. Put it in front of the optimizer's class.
    """

    def _update_all(self) -> None:
        """Decay the weights, then step."""
        for group in self.param_groups:
            decay_factor = 1.0 - float(group["lr"]) * group["decoupled_weight_decay"]
            for parameter in group["params"]:
                if parameter.grad is not None and decay_factor != 1.0:
                    parameter.mul_(decay_factor)
        super()._update_all()


class Copyable(torch.optim.Optimizer):
    """Keeps an optimizer's own attributes in deep copies.

    `torch.optim.Optimizer` copies groups and state alone, and those of `pytorch_optimizer` keep some of their settings
    (`maximize`, `clip_threshold`, …) beside them: their copies fail at the first step.
    """

    def __getstate__(self) -> dict[str, Any]:
        # Torch sets up its hooks again; `step` is there where a scheduler has wrapped the original's.
        attributes = {
            name: value
            for name, value in vars(self).items()
            if name != "step" and not name.startswith(("_optimizer_", "_zero_grad_", "_patch"))
        }
        return {**attributes, **super().__getstate__()}


class DecoupledSGD(DecoupledDecay, torch.optim.SGD):
    """torch's SGD, Nesterov's momentum included, with decoupled decay."""


class PerMatrix(ClosureStep):
    """Gives the optimizer's step every matrix of a stack (experts × m × n) as a parameter of its own.

    Such a class takes the whole stack for one tensor: it would clip all experts together, or turn them into each other.
    The stacks are in groups with `stacked`; their state is kept as `0.exp_avg`, `1.exp_avg`, …
    """

    def _update_all(self) -> None:
        """Step on matrices."""
        stacked = [(group, group["params"]) for group in self.param_groups if group.get("stacked")]
        splits = [(stack, self._take_apart(stack)) for _, stacks in stacked for stack in stacks]
        split_iterator = iter(splits)
        for group, stacks in stacked:
            group["params"] = [matrix for _ in stacks for matrix in next(split_iterator)[1]]
        try:
            super()._update_all()
        finally:
            for group, stacks in stacked:
                group["params"] = stacks
            for stack, matrices in splits:
                self._put_together(stack, matrices)

    def _take_apart(self, stack: torch.Tensor) -> list[torch.nn.Parameter]:
        """Return the matrices, which share the stack's memory, with their gradients and the state that was kept for
        them."""
        matrices = [torch.nn.Parameter(matrix) for matrix in stack.detach().unbind()]
        for index, matrix in enumerate(matrices):
            matrix.grad = None if stack.grad is None else stack.grad[index]
        for key, value in self.state.pop(stack, {}).items():
            index, _, name = key.partition(".")
            self.state[matrices[int(index)]][name] = value
        return matrices

    def _put_together(self, stack: torch.Tensor, matrices: list[torch.nn.Parameter]) -> None:
        for index, matrix in enumerate(matrices):
            for name, value in self.state.pop(matrix, {}).items():
                self.state[stack][f"{index}.{name}"] = value


class PlainRoot(torch.optim.Optimizer):
    """Divides by sqrt(v) + eps, as the paper and its authors do.

    `pytorch_optimizer` has sqrt(v + 1e-15) + eps: at gradients of 1e-7 that makes steps 4 % shorter.
    """

    @staticmethod
    def apply_ams_bound_foreach(
        ams_bound: bool, exp_avg_sqs: list[torch.Tensor], max_exp_avg_sqs: list[torch.Tensor], eps: float
    ) -> list[torch.Tensor]:
        """Return the divisors of several tensors, in the place of the debiased moments."""
        torch._foreach_sqrt_(exp_avg_sqs)
        torch._foreach_add_(exp_avg_sqs, eps)
        return exp_avg_sqs

    @staticmethod
    def apply_ams_bound(ams_bound: bool, exp_avg_sq: torch.Tensor, max_exp_avg_sq: None, eps: float) -> torch.Tensor:
        """Return the divisor of one."""
        root: torch.Tensor = exp_avg_sq.sqrt_().add_(eps)
        return root


def complete_class(
    name: str, *, decay: bool = False, matrices: bool = False, plain_root: bool = False
) -> Callable[..., torch.optim.Optimizer]:
    """Return a class of `pytorch_optimizer` with what it lacks.

    Args:
        name: The class.
        decay: Add decoupled weight decay.
        matrices: Its formulas are for matrices: take stacks apart.
        plain_root: Leave nothing but v inside the root.
    """
    lacking = [(decay, DecoupledDecay), (matrices, PerMatrix), (plain_root, PlainRoot)]
    bases = (base for wanted, base in lacking if wanted)
    return type(name, (Copyable, *bases, getattr(library(), name)), {})


def library() -> ModuleType:
    """Return `pytorch_optimizer`, imported without transformers, which it would load to ask about DeepSpeed."""
    with absent("transformers"):
        return import_module("pytorch_optimizer")
