"""Gradient descent on an explicit M, with explicit residuals: the paper's algorithm 2."""

from math import cos, pi

from torch import Tensor


def as_printed(M: Tensor, L: Tensor, R: Tensor, K: int = 5) -> tuple[Tensor, Tensor]:
    """Algorithm 2 to the letter: both factors move at once, with eta_k = (1 + cos(pi k / K)) / 2."""
    for k in range(K):
        eta = 0.5 * (1 + cos(pi * k / K))
        L, R = L - eta * (L @ R - M) @ R.T, R - eta * L.T @ (L @ R - M)
    return L, R
