"""`debias-theorem`: theorem 2 as a numerical experiment, the bias of the corrected momentum over t against its bound.

Many replicas of algorithm 1's lines 4 to 8 on one matrix, with gradients G_t = S + noise: S fixed, of falling spectrum,
so that what a low rank drops has a mean that correction must bring back.
"""

from typing import TYPE_CHECKING

from orchestrator.studies.result import Figure, StudyResult
from orchestrator.studies.study import Numbers, Study, StudyFigures

if TYPE_CHECKING:
    from torch import Generator, Tensor

ROWS, COLUMNS, RANK = 24, 16, 2
BETA1 = 0.9
"""The paper's."""
NOISE = 0.002
"""Of each element of a gradient; S has singular values 1, 1/2, 1/3, …"""
REPLICAS = 64
STEPS = (1, 2, 3, 5, 10, 20, 40)
SEED = 20_251_009
Z = 3.0
"""Standard errors of the mean over replicas to each side of a measured bias."""


def compute() -> Numbers:
    """`bias`, `plain` (without correction), `error` (one standard error) and `mean_residual` at some t, and the exact
    solver's largest mean residual C."""
    import torch  # heavy: pages show the figures without it

    generator = torch.Generator().manual_seed(SEED)
    left, right = (_orthonormal(torch.randn(size, COLUMNS, generator=generator)) for size in (ROWS, COLUMNS))
    mean = left @ torch.diag(1.0 / torch.arange(1, COLUMNS + 1)) @ right.T
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of tiny decompositions: threads would only wait for each other
    try:
        return _follow_momentum(mean, generator)
    finally:
        torch.set_num_threads(threads)


def _follow_momentum(mean: "Tensor", generator: "Generator") -> Numbers:
    import torch  # heavy: pages show the figures without it

    from optim.adapm.low_rank import Factors, Momentum  # loads torch
    from optim.adapm.solvers import svd  # loads torch

    factors = Factors(torch.zeros(REPLICAS, ROWS, RANK), torch.zeros(REPLICAS, RANK, COLUMNS))
    full, norms, largest = torch.zeros(REPLICAS, ROWS, COLUMNS), {}, 0.0
    for t in range(1, max(STEPS) + 1):
        noise = torch.randn(full.shape, generator=generator)
        momentum = Momentum(gradient=mean + NOISE * noise, carried=factors, beta1=BETA1)
        dense = momentum.dense()
        full = BETA1 * full + (1.0 - BETA1) * momentum.gradient
        factors = svd(momentum, iterations=1, fresh=False, sketch=lambda: torch.empty(0))
        residual = factors.left @ factors.right - dense
        corrected = dense - BETA1 / (1.0 - BETA1) * residual
        largest = max(largest, _mean_norm(residual)[0])
        if t in STEPS:
            norms[f"bias/{t}"], norms[f"error/{t}"] = _mean_norm(corrected - full)
            norms[f"plain/{t}"] = _mean_norm(dense - full)[0]
            norms[f"mean_residual/{t}"] = _mean_norm(residual)[0]
    return norms | {"C": largest}


def _mean_norm(samples: "Tensor") -> tuple[float, float]:
    """(norm of the mean over replicas, without what their noise adds to it; its standard error). Samples: B × m × n."""
    average = samples.mean(dim=0)
    error = float((samples.var(dim=0).sum() / samples.shape[0]).sqrt())
    squared = float(average.square().sum()) - error**2
    return max(squared, 0.0) ** 0.5, error


def _orthonormal(matrix: "Tensor") -> "Tensor":
    import torch  # heavy: pages show the figures without it

    columns: Tensor = torch.linalg.qr(matrix).Q
    return columns


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """At every t the bias by the theorem's bound, C b1^(t+1) / (1 − b1), and by that of the same proof without the
    residual r_0 = 0, larger by 1 / b1; at the last t what correction leaves of the bias."""
    values, figures = result.computed, []
    if not values:
        return []
    for t in STEPS:
        bound = values["C"] * BETA1 ** (t + 1) / (1.0 - BETA1)
        figures.append(_bias(values, t, "bias by the theorem's bound", bound))
        figures.append(_bias(values, t, "bias by C b1^t / (1 − b1)", bound / BETA1))
    last = STEPS[-1]
    return [*figures, _bias(values, last, "bias by that without correction", values[f"plain/{last}"])]


def _bias(values: Numbers, t: int, metric: str, unit: float) -> Figure:
    """In that unit, with an interval of `Z` standard errors."""
    bias, error = values[f"bias/{t}"], values[f"error/{t}"]
    low, high = max(bias - Z * error, 0.0), bias + Z * error
    return Figure(metric=metric, candidate=f"t = {t}", value=bias / unit, low=low / unit, high=high / unit, n=REPLICAS)


FIGURES = StudyFigures(compute=compute, version="1", measure=measure)
