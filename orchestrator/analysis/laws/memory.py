"""Memory at a size that was not trained: counted where the size is a model's, else told from the sizes that were.

    a model of the catalog   bytes of the real optimizer on `meta`, exact           (`worker/footprint/count.py`)
    a number of parameters   log state = a + b log N over the trained sizes, with its 95 % prediction interval

Activations, which depend on the batch, come on top of both.
"""

from collections.abc import Sequence

import numpy as np

from orchestrator.analysis.laws.records import Estimate, MemoryPrediction
from orchestrator.analysis.statistics import t_quantile
from worker.records.footprint import Footprint

FLOAT32_BYTES = 4
"""Parameters and gradients are kept in float32; `bf16` is autocast."""


def count_state(need: Footprint) -> MemoryPrediction | None:
    """Of a model of the catalog and one optimizer; None where it cannot be counted without running it."""
    state_bytes = need.optimizers[0].state_bytes
    if state_bytes is None:
        return None
    return MemoryPrediction(
        parameter_bytes=need.parameter_bytes,
        gradient_bytes=need.gradient_bytes,
        state_bytes=Estimate(value=state_bytes, low=state_bytes, high=state_bytes),
        exact=True,
    )


def extrapolate_state(states: Sequence[tuple[int, int]], parameters: int) -> MemoryPrediction | None:
    """From (parameters, bytes of state) of the trained sizes; None without a state at all."""
    known = [(size, held) for size, held in states if size > 0 and held > 0]
    if not known:
        return None
    return MemoryPrediction(
        parameter_bytes=FLOAT32_BYTES * parameters,
        gradient_bytes=FLOAT32_BYTES * parameters,
        state_bytes=_line(known, parameters),
        exact=False,
    )


def _line(known: Sequence[tuple[int, int]], parameters: int) -> Estimate:
    """Of one size: in proportion to it. Of two: no interval, for nothing is left to tell the spread."""
    x, y = np.log(np.array(known, dtype=np.float64)).T
    at = float(np.log(parameters))
    if len(known) == 1 or np.ptp(x) == 0:
        return Estimate(value=float(np.exp(y.mean() + at - x.mean())), low=None, high=None)
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    value = float(y.mean() + slope * (at - x.mean()))
    degrees = len(known) - 2
    if degrees < 1:
        return Estimate(value=float(np.exp(value)), low=None, high=None)
    residuals = y - y.mean() - slope * (x - x.mean())
    spread = float(np.sqrt((residuals**2).sum() / degrees))
    leverage = 1 + 1 / len(known) + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    half = t_quantile(degrees, 0.975) * spread * float(np.sqrt(leverage))
    low, high = np.exp(np.clip([value - half, value + half], -700, 700))
    return Estimate(value=float(np.exp(value)), low=float(low), high=float(high))
