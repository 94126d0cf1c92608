"""Replicas of the momentum's low-rank updates, side by side as one batch of matrices."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from optim.adapm.low_rank import Factors, Momentum
from optim.adapm.solvers import svd
from orchestrator.studies.study import Numbers

ROWS, COLUMNS, RANK = 24, 16, 2
NOISE = 0.002
"""The noise of each element of a gradient; S has singular values 1, 1/2, 1/3, …"""
SEED = 20_251_009


def follow_replicas(beta1: float, replicas: int, steps: Sequence[int]) -> Numbers:
    """Return the numbers of `figures.compute`."""
    generator = torch.Generator().manual_seed(SEED)
    left, right = (torch.linalg.qr(torch.randn(size, COLUMNS, generator=generator)).Q for size in (ROWS, COLUMNS))
    mean = left @ torch.diag(1.0 / torch.arange(1, COLUMNS + 1)) @ right.T
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of tiny decompositions: threads would only wait for each other
    try:
        return _follow_momentum(mean, generator, beta1, replicas, steps)
    finally:
        torch.set_num_threads(threads)


def _follow_momentum(mean: Tensor, generator: Generator, beta1: float, replicas: int, steps: Sequence[int]) -> Numbers:
    factors = Factors(torch.zeros(replicas, ROWS, RANK), torch.zeros(replicas, RANK, COLUMNS))
    full, norms, largest = torch.zeros(replicas, ROWS, COLUMNS), {}, 0.0
    for t in range(1, max(steps) + 1):
        noise = torch.randn(full.shape, generator=generator)
        momentum = Momentum(gradient=mean + NOISE * noise, carried=factors, beta1=beta1)
        dense = momentum.dense()
        full = beta1 * full + (1.0 - beta1) * momentum.gradient
        (factors,) = svd([momentum], iterations=1, fresh=False, sketches=[])
        residual = factors.left @ factors.right - dense
        corrected = dense - beta1 / (1.0 - beta1) * residual
        largest = max(largest, _mean_norm(residual)[0])
        if t in steps:
            norms[f"bias/{t}"], norms[f"error/{t}"] = _mean_norm(corrected - full)
            norms[f"plain/{t}"] = _mean_norm(dense - full)[0]
            norms[f"mean_residual/{t}"] = _mean_norm(residual)[0]
    return norms | {"C": largest}


def _mean_norm(samples: Tensor) -> tuple[float, float]:
    """Return (norm of the mean over replicas, less what their noise adds; its standard error). Samples: B × m × n."""
    average = samples.mean(dim=0)
    error = float((samples.var(dim=0).sum() / samples.shape[0]).sqrt())
    squared = float(average.square().sum()) - error**2
    return max(squared, 0.0) ** 0.5, error
