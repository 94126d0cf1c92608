"""The callables that the catalog names: each takes a model, a learning rate and its entry's options.

They translate between the catalog's plain, torch-free options and an optimizer's own arguments, nothing else.
"""

from typing import Any, cast

import torch
from torch import nn

from optim.adapm import AdaPM, AdaPMMini
from optim.groups import decaying
from optim.placement import Unknown

# The devices on which torch has a fused AdamW that needs no extra care. It is the honest baseline for speed: on a CPU
# some six times faster than the foreach one.
_FUSED_DEVICES = frozenset({"cpu", "cuda"})


def adapm(model: nn.Module, *, lr: float, **options: Any) -> AdaPM:
    """AdaPM on every trainable parameter of the model."""
    return AdaPM.for_model(model, lr, **_adapm_arguments(**options))


def adapm_mini(model: nn.Module, *, lr: float, **options: Any) -> AdaPMMini:
    """AdaPM-mini on every trainable parameter of the model."""
    return AdaPMMini.for_model(model, lr, **_adapm_arguments(**options))


def adamw(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> torch.optim.AdamW:
    """torch's fused AdamW. Matrices decay and vectors do not, as for AdaPM, so that the two compare."""
    groups = decaying(model, weight_decay)
    fused = all(value.device.type in _FUSED_DEVICES for group in groups for _, value in group["params"])
    return torch.optim.AdamW(groups, lr=lr, betas=(beta1, beta2), eps=eps, fused=fused or None)


def _adapm_arguments(
    *, beta1: float, beta2: float, state_dtype: str | None, unknown: str, **options: Any
) -> dict[str, Any]:
    dtype = None if state_dtype is None else cast("torch.dtype", getattr(torch, state_dtype))
    return {**options, "betas": (beta1, beta2), "state_dtype": dtype, "unknown": cast(Unknown, unknown)}
