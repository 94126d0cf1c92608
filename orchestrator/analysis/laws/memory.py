"""Memory at a size that was not trained: counted where the size is a model's, else told from the sizes that were.

    a model of the catalog   bytes of the real optimizer on `meta`, exact           (`worker/footprint/count.py`)
    a number of parameters   log state = a + b log N over the trained sizes

Activations, which depend on the batch, come on top of both.
"""

from collections.abc import Sequence

import numpy as np

from orchestrator.analysis.laws.records import Estimate, MemoryPrediction
from worker.records.footprint import Footprint

FLOAT32_BYTES = 4
"""Parameters and gradients are kept in float32; `bf16` is autocast."""


def count_state(need: Footprint) -> MemoryPrediction | None:
    """Return the state of one optimizer for a model of the catalog; None if it cannot be counted without running it."""
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
    """Return the state at a size from (parameters, bytes of state) of the trained sizes: of one in proportion to it, of
    several on the line of the logarithms. None without a state at all."""
    measured = [(size, held) for size, held in states if size > 0 and held > 0]
    if not measured:
        return None
    x, y = np.log(np.array(measured, dtype=np.float64)).T
    slope = float(np.polyfit(x, y, 1)[0]) if np.ptp(x) > 0 else 1.0
    state = float(np.exp(y.mean() + slope * (np.log(parameters) - x.mean())))
    return MemoryPrediction(
        parameter_bytes=FLOAT32_BYTES * parameters,
        gradient_bytes=FLOAT32_BYTES * parameters,
        state_bytes=Estimate(value=state, low=None, high=None),
        exact=False,
    )
