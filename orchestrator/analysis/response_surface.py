"""What a search by coordinate descent leaves open: how far below the judged setting the loss may be. Pure.

    mean losses of the trials at their places ─► a parabola for each axis, added ─► its minimum within the ranges

Drawn 1,000 times from what the noise, or the misfit where that is larger, leaves possible; the 95 % point, and a share
of each parabola's rise, for a basin that is none. What axes do to one another is not in it beyond that misfit.
"""

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.kinds.basin import MISFIT
from orchestrator.kinds.coordinate_descent import FIRST_STEP
from orchestrator.records import SIGNIFICANCE

DRAWS = 1000
SAME = 1e-3
"""Places closer together are one."""


def surface_regret(places: Sequence[Sequence[float]], losses: Sequence[float], judged: int, variance: float) -> float:
    """How far the minimum may lie below the loss at the judged trial; infinite where too few were trained to tell.

    `places` [trial, axis] run from -1 to 1; `losses` are means over the seeds, with that variance each.
    """
    at, means = np.array(places, dtype=np.float64), np.array(losses, dtype=np.float64)
    seen = [len(np.unique(np.round(column / SAME))) for column in at.T]
    if len(at) < 2 or min(seen) < 2:
        return math.inf
    curved = np.array([count > 2 for count in seen])
    design = np.hstack([np.ones((len(at), 1)), at, at[:, curved] ** 2])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return math.inf
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ means
    degrees = len(at) - design.shape[1]
    misfit = float(np.sum((means - design @ found) ** 2)) / degrees if degrees else 0.0
    random = np.random.default_rng(0)
    drawn = (
        found
        + math.sqrt(max(variance, misfit)) * random.standard_normal((DRAWS, len(found))) @ np.linalg.cholesky(inverse).T
    )
    slopes = drawn[:, 1 : 1 + at.shape[1]]
    curvatures = np.zeros_like(slopes)
    curvatures[:, curved] = np.maximum(drawn[:, 1 + at.shape[1] :], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        lowest = np.where(curvatures > 0, -slopes / (2 * curvatures), -np.sign(slopes))
    lowest = np.clip(lowest, -1.0, 1.0)
    here = at[judged]
    gains = slopes * (here - lowest) + curvatures * (here**2 - lowest**2)
    rise = float(np.sum(np.maximum(found[1 + at.shape[1] :], 0.0))) * FIRST_STEP**2
    return float(np.quantile(gains.sum(axis=1), 1 - SIGNIFICANCE)) + MISFIT * rise
