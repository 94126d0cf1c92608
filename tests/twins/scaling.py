"""A scaling law fitted in the plain, readable way: the objective of the paper, one L-BFGS minimisation per start."""

from itertools import product

import numpy as np
from scipy.optimize import minimize
from scipy.special import huber

DELTA = 1e-3


def objective(theta: np.ndarray, sizes: np.ndarray, tokens: np.ndarray, losses: np.ndarray) -> float:
    """Hoffmann et al., equation 3: theta = (log A, log B, log E, alpha, beta)."""
    a, b, e, alpha, beta = theta
    predicted = np.logaddexp(np.logaddexp(a - alpha * np.log(sizes), b - beta * np.log(tokens)), e)
    return float(huber(DELTA, np.log(losses) - predicted).sum())


def fit_both(sizes: np.ndarray, tokens: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, float]:
    """The best of a small grid of starts, and its objective."""
    starts = product((2.0, 6.0), (2.0, 6.0), (-0.5, 0.5), (0.2, 0.5), (0.2, 0.5))
    fits = [minimize(objective, start, (sizes, tokens, losses), method="L-BFGS-B") for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    return best.x, float(best.fun)
