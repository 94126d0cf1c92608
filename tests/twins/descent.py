"""Gradient descent on an explicit M, with explicit residuals: the paper's algorithm 2, and what was made of it."""

from math import cos, pi

import torch
from torch import Tensor


def as_printed(M: Tensor, L: Tensor, R: Tensor, K: int = 5) -> tuple[Tensor, Tensor]:
    """Algorithm 2 to the letter: both factors move at once, with eta_k = (1 + cos(pi k / K)) / 2."""
    for k in range(K):
        eta = 0.5 * (1 + cos(pi * k / K))
        L, R = L - eta * (L @ R - M) @ R.T, R - eta * L.T @ (L @ R - M)
    return L, R


def scaled(M: Tensor, L: Tensor, R: Tensor, K: int = 5) -> tuple[Tensor, Tensor]:
    """`scaled_gd`: one factor after the other, each step through the other's inverse Gram matrix."""
    for k in range(K):
        eta = 0.5 * (1 + cos(pi * k / K))
        L = L - eta * (L @ R - M) @ R.T @ torch.linalg.inv(R @ R.T)
        R = R - eta * torch.linalg.inv(L.T @ L) @ L.T @ (L @ R - M)
    return L, R


def best_left(M: Tensor, R: Tensor) -> Tensor:
    """The L that minimises || L R - M ||_F: least squares."""
    solution: Tensor = torch.linalg.lstsq(R.T, M.T).solution
    return solution.T
