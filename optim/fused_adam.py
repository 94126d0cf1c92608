"""torch's fused AdamW kernel for the CPU, put to AdaPM's use: blocks that keep all of Adam's moments in one call.

The kernel works out, in one pass over the data,

    m <- b1 m + (1 - b1) G        v <- b2 v + (1 - b2) G * G
    W <- (1 - lr wd) W - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

which is AdaPM for a full momentum; algorithm 1 has no 1 - b^t, and at a step t = 10^18 they are 1. It reads tensors as
plain memory, so it is used for contiguous float32 on the CPU only; `block_step.py` has the formulas for all else.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from optim import accelerators

_NEVER_DEBIASED = 1e18


def applies(tensors: Iterable[Tensor]) -> bool:
    """Whether the kernel may be given these tensors."""
    return all(
        tensor.dtype is torch.float32 and tensor.is_contiguous() and not accelerators.is_accelerator(tensor.device)
        for tensor in tensors
    )


def move(
    weights: list[Tensor],
    gradients: list[Tensor],
    averages: list[Tensor],
    moments: list[Tensor],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    debias_at: int | None,
) -> None:
    """A whole step of blocks with full momentum: W, m and v in place. `debias_at` is t, None for no 1 - b^t."""
    step = torch.tensor(_NEVER_DEBIASED if debias_at is None else float(debias_at))
    torch._fused_adamw_(
        weights,
        gradients,
        averages,
        moments,
        [],
        [step] * len(weights),
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )
