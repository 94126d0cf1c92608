"""AdamW with 8-bit or 4-bit moments, torchao's, made to keep this bench's promises.

Blocks of 256 (8 bits) or 128 (4 bits) neighbouring values share a scale and a table of 256 or 16 levels (Dettmers et
al., arXiv 2110.02861; Li et al., arXiv 2309.01507). Parameters of fewer than 4,096 values, or of no whole number of
blocks, keep moments of their own type. torchao is an extra (`low-bit`) and imported here alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from logging import ERROR, getLogger
from typing import Any

import torch
from torch import nn

from ..closure_step import ClosureStep
from ..plan.groups import decay_groups
from .adapters import Copyable


def _build(
    cls: str, model: nn.Module, *, beta1: float, beta2: float, weight_decay: float, **options: Any
) -> torch.optim.Optimizer:
    with _quiet_import():
        import torchao.optim  # an extra
    base = getattr(torchao.optim, cls)
    for signed in (True, False):
        # The table of levels is made once, by the first who asks for it: not on `meta`, which would have none.
        with torch.device("cpu"):
            _let_clone(type(base._subclass_zeros(torch.empty(4096), signed, 256)))
    optimizer_class = type(cls, (_Eager, Copyable, base), {})
    optimizer: torch.optim.Optimizer = optimizer_class(
        decay_groups(model, weight_decay), betas=(beta1, beta2), **options
    )
    return optimizer


adamw_8bit, adamw_4bit = partial(_build, "AdamW8bit"), partial(_build, "AdamW4bit")


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Silence warnings while torchao is imported: its own on kernels for other devices, and torch's on its
    enumerations."""
    loud = {logger: logger.level for logger in map(getLogger, ("torchao", "torch.utils._pytree"))}
    for logger in loud:
        logger.setLevel(ERROR)
    try:
        yield
    finally:
        for logger, level in loud.items():
            logger.setLevel(level)


def _let_clone(kind: Any) -> None:
    """Add `clone` to torchao's tensors, which a deep copy needs."""

    def clone(func: object, types: object, args: Any, kwargs: object) -> torch.Tensor:
        inner_names, context = args[0].__tensor_flatten__()
        inner = {name: getattr(args[0], name).clone() for name in inner_names}
        copied: torch.Tensor = kind.__tensor_unflatten__(inner, context)
        return copied

    kind.implements(torch.ops.aten.clone.default)(clone)


class _Eager(ClosureStep):
    """Takes rates as numbers, as every scheduler and loop sets them, and compiles on GPUs only.

    torchao compiles its step for every shape: seconds each on a CPU, which gains nothing from it.
    """

    bf16_stochastic_round: bool
    _new_buffer: Callable[[torch.Tensor, bool], torch.Tensor]

    def _update_all(self) -> None:
        """Take torchao's step."""
        for group in self.param_groups:
            if not isinstance(group["lr"], torch.Tensor):
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32)
        if all(value.is_cuda for group in self.param_groups for value in group["params"]):
            super()._update_all()
        else:
            self._step_uncompiled()

    def _step_uncompiled(self) -> None:
        """Step like torchao's `step`, without its compiler."""
        from torchao.optim.adam import single_param_adam  # an extra

        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is None:
                    continue
                state = self.state[value]
                if not state:
                    state["step"] = torch.zeros((), device="cpu")
                    state["exp_avg"] = self._new_buffer(value, True)
                    state["exp_avg_sq"] = self._new_buffer(value, False)
                state["step"] += 1
                single_param_adam(
                    value.detach(),
                    value.grad,
                    state["step"],
                    state["exp_avg"],
                    state["exp_avg_sq"],
                    None,
                    group["lr"],
                    *group["betas"],
                    group["weight_decay"],
                    group["eps"],
                    IS_ADAMW=True,
                    BF16_STOCHASTIC_ROUND=self.bf16_stochastic_round and value.dtype is torch.bfloat16,
                )
