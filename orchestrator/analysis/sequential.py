"""Looks at a comparison while it goes: boundaries that hold the error of all looks together.

A sequential comparison (`ComparisonSpec.sequential`) looks at the paired differences after the first n₀ seeds and after
further ones, and stops where it likes. Usual 95 % intervals after 3, 4, … 10 seeds would leave zero out in 17 % of
experiments with equal optimizers. So each look n has a level of its own, and spends a part of the error

    α(n / N) = 2 − 2 Φ(z_{α/2} / √(n / N))        (K. K. G. Lan and D. L. DeMets, Biometrika 70, 1983)

which is next to nothing early, and all of α at the last of N seeds. What is left for each look is not read off the
normal's tables, since three seeds are not normal: with u_n = Σx / √Σx², whose t is √(n−1) u / √(n − u²), of normal
differences without a mean

    u_{n+1} = u_n cos φ + sin φ,        φ with the density ∝ cos^{n−1} φ, independent of u_1 … u_n

because the direction of (x_1 … x_n) says nothing of its length. So t-tests in a row are a chain of one dimension,
whatever the variance is, and the levels are exact, by integration over cells of |u|.

Each seed count from n₀ to N has its level, looked at or not. An interval at the level of its n is a repeated confidence
interval (C. Jennison and B. W. Turnbull, JRSS B 51, 1989): all of them hold together, so that the one at the end holds
whatever the reason was to stop, futility too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis import scipy_parts as sp

CELLS = 200
"""The cells of |u| between zero and the boundary: levels to three digits."""
FUTILE = 0.1
"""Below this chance of a verdict by the last seed, more seeds are not worth their runs."""
NODES = 16
"""Spreads that a chance is averaged over."""

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Look:
    """The error that a test with so many pairs may spend."""

    level: float
    """Two-sided, of the t-test at this look."""
    all_levels: float
    """The sum over all looks, which bounds what they spend together at whatever share of their levels."""


@lru_cache(maxsize=256)
def looks(first: int, last: int, alpha: float) -> Mapping[int, Look]:
    """Return number of pairs → its look, from the first to the last; together they spend `alpha`. Of very many seeds
    the first looks have nothing to spend, and there are none."""
    levels: dict[int, float] = {}
    u = shares = np.zeros(0)
    for n in range(first, last + 1):
        spend = _spent_error(n / last, alpha) - (_spent_error((n - 1) / last, alpha) if n > first else 0.0)
        low, high = 0.0, math.sqrt(n)
        for _ in range(60):
            bound = (low + high) / 2
            if n == first:
                crossed = _tail_probability(bound, n)
            else:
                crossed = float(shares @ (1 - _probability_within(np.array([bound]), u, n - 1)[:, 0]))
            low, high = (bound, high) if crossed > spend else (low, bound)
        edges = _cells(high, n)
        if n == first:
            shares = np.diff(sp.special.betainc(0.5, (n - 1) / 2, np.minimum(edges**2 / n, 1.0)))
        else:
            shares = np.diff(shares @ _probability_within(edges, u, n - 1))
        u = (edges[1:] + edges[:-1]) / 2
        levels[n] = _tail_probability(high, n)
    total = sum(levels.values())
    return {n: Look(level=level, all_levels=total) for n, level in levels.items() if level > 1e-12}  # less is rounding


def chance_of_verdict(
    mean: float,
    sd: float,
    pairs: int,
    planned_pairs: int,
    level: float,
    *,
    evaluation_error: float = 0.0,
    margin: float | None,
) -> float:
    """Return the probability that the interval of the last seed, at `level`, leaves zero out or lies within the margin,
    if differences go on as the `pairs` so far. The truth is as likely anywhere that the pairs allow (a flat prior), and
    the spread is averaged over its chi-square."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    spread = sd * np.sqrt((pairs - 1) / sp.special.chdtri(pairs - 1, (1 - nodes) / 2))
    half, half_within = (
        np.hypot(
            sp.special.stdtrit(planned_pairs - 1, 1 - tail) * spread / math.sqrt(planned_pairs),
            sp.special.ndtri(1 - tail) * evaluation_error,
        )
        for tail in (level / 2, level)
    )
    moves = spread * math.sqrt((planned_pairs - pairs) / (planned_pairs * pairs))
    chance = sp.special.ndtr((-half - mean) / moves) + sp.special.ndtr((mean - half) / moves)
    if margin is not None:
        limit = np.minimum(margin - half_within, half)
        chance += np.maximum(sp.special.ndtr((limit - mean) / moves) - sp.special.ndtr((-limit - mean) / moves), 0.0)
    return float(chance @ weights / 2)


def _spent_error(share: float, alpha: float) -> float:
    """Return the part of alpha that is spent after that share of the seeds."""
    return float(2 * sp.special.ndtr(sp.special.ndtri(alpha / 2) / math.sqrt(share)))


def _tail_probability(bound: float, n: int) -> float:
    """Return P(|u_n| > bound), of no other look: that of one coordinate of a point on the sphere in n dimensions."""
    return float(sp.special.betaincc(0.5, (n - 1) / 2, min(bound**2 / n, 1.0)))


def _cells(bound: float, n: int) -> Array:
    """Return the edges of cells up to the boundary, the narrower the nearer to √n, where little of u is much of t."""
    return np.asarray(math.sqrt(n) * np.sin(np.linspace(0.0, math.asin(min(bound / math.sqrt(n), 1.0)), CELLS + 1)))


def _probability_within(bounds: Array, u: Array, n: int) -> Array:
    """Return P(|u_{n+1}| ≤ bound) for each u_n (rows) and each bound: u_{n+1} = √(1 + u²) sin(φ + atan u)."""

    def chance(angle: Array) -> Array:
        """Return P(φ ≤ angle)."""
        clipped = np.clip(angle, -math.pi / 2, math.pi / 2)
        return np.asarray(0.5 + np.sign(clipped) / 2 * sp.special.betainc(0.5, n / 2, np.sin(clipped) ** 2))

    start = np.arctan(u)[:, None]
    reach = np.arcsin(np.minimum(bounds[None, :] / np.sqrt(1 + u**2)[:, None], 1.0))
    return chance(reach - start) - chance(-reach - start) + 1 - chance(math.pi - reach - start)
