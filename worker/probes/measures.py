"""What probes say about one matrix: pure functions, tensor in, finite numbers out; an all-zero matrix is no error.

Singular values come from the smaller Gram matrix: an embedding of 50,257 × 768 costs one product and a 768 × 768
eigenproblem. That squares the condition number, so energies below 1e-7 of the largest are noise, which no share shows.
"""

from typing import Final

import torch
from torch import Tensor

from optim.plan.blocks import rank_of

ENERGY_PERCENTS: Final = (1, 2, 5, 10, 20, 50)
"""Shares of the singular values whose energy is told; the paper's figure speaks of the top 5 %."""
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_QUANTILE_ELEMENTS: Final = 2**20
"""Quantiles of larger matrices are taken over evenly strided elements: sorting 40 M would take seconds."""

Values = dict[str, float]


def sparsity(gradient: Tensor, near_zero: float) -> Values:
    """Shares of the rows and columns of an m × n gradient whose norm is below `near_zero` of the largest, and its norm.

    Rows and columns are as the parameter stores them; in a zero gradient all of them are near zero.
    """
    gradient = gradient.float()
    shares = {}
    for name, axis in (("rows_near_zero", 1), ("columns_near_zero", 0)):
        norms = torch.linalg.vector_norm(gradient, dim=axis)
        largest = norms.max()
        near = norms < near_zero * largest if largest > 0 else torch.ones_like(norms)
        shares[name] = near.float().mean().item()
    return {**shares, "norm": torch.linalg.vector_norm(gradient).item()}


def spectrum(momentum: Tensor) -> Values:
    """Share of the energy (squared singular values) in the largest 1, 2, 5 … % singular values, each at least one."""
    energies = _energies(momentum.float())
    total = energies.sum().item()
    cumulated = energies.cumsum(0)
    return {
        f"energy_top_{percent}_percent": cumulated[rank_of(tuple(momentum.shape), percent / 100) - 1].item() / total
        if total > 0
        else 0.0
        for percent in ENERGY_PERCENTS
    }


def residual(residue: Tensor, momentum: Tensor) -> Values:
    """Of what a low rank drops (m × n): its norm relative to the momentum's, and quantiles of its absolute elements."""
    size, norm = (torch.linalg.vector_norm(tensor.float()).item() for tensor in (residue, momentum))
    elements = residue.float().abs().flatten()
    stride = -(-elements.numel() // MOST_QUANTILE_ELEMENTS)
    found = torch.quantile(elements[::stride], torch.tensor(QUANTILES, device=elements.device))
    quantiles = {f"quantile_{round(100 * q)}": value for q, value in zip(QUANTILES, found.tolist(), strict=True)}
    return {"relative_norm": size / norm if norm > 0 else 0.0, **quantiles}


def truncate_rank(momentum: Tensor, rank: int) -> Tensor:
    """The best approximation of an m × n matrix of that rank, by its leading singular vectors."""
    matrix = momentum.float()
    wide = matrix.shape[0] <= matrix.shape[1]
    _, vectors = torch.linalg.eigh(_gram(matrix))
    leading = vectors[:, -rank:].to(matrix.dtype)
    found: Tensor = leading @ (leading.T @ matrix) if wide else (matrix @ leading) @ leading.T
    return found


def _energies(matrix: Tensor) -> Tensor:
    """Squared singular values, largest first."""
    energies: Tensor = torch.linalg.eigvalsh(_gram(matrix))
    return energies.flip(0).clamp_min(0.0)


def _gram(matrix: Tensor) -> Tensor:
    """The smaller of M M^T and M^T M, in float64: forming it there costs little and keeps small energies."""
    wide = matrix.shape[0] <= matrix.shape[1]
    return (matrix @ matrix.T if wide else matrix.T @ matrix).double()
