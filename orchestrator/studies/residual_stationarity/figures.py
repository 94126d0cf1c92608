"""`residual-stationarity`: how far the quantiles of |r| drift within a window of 20 steps."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from orchestrator.studies.probes import means_over_runs, values_of_role
from orchestrator.studies.study import Numbers, StudyFigures
from worker.records.result import Observation

LOW_RANK_ROLES = ("query", "key", "MLP")
"""The roles whose momentum AdaPM keeps at low rank."""
WINDOW_STEPS = 20
"""The paper's."""
QUANTILES = ("quantile_25", "quantile_50", "quantile_75", "quantile_95")
SMALLEST = 1e-30
"""The smallest value of a quantile, whose logarithm is taken."""


def observe(observations: Sequence[Observation]) -> Numbers:
    """Return role → the largest relative drift of a quantile of |r| from the first to the second half of the first
    window."""
    window = [observation for observation in observations if observation.probe == "residual"][:WINDOW_STEPS]
    if len(window) < WINDOW_STEPS:
        return {}
    half = WINDOW_STEPS // 2
    drifts: Numbers = {}
    for role in LOW_RANK_ROLES:
        logs = [[_mean_log(observation, role, quantile) for observation in window] for quantile in QUANTILES]
        drifts[role] = max(abs(fmean(of_steps[half:]) - fmean(of_steps[:half])) for of_steps in logs)
    return drifts


def _mean_log(observation: Observation, role: str, quantile: str) -> float:
    """Return the mean logarithm of a quantile over the blocks of a role."""

    def log(values: Mapping[str, float]) -> float:
        return math.log(max(values[quantile], SMALLEST))

    return fmean(values_of_role(observation, role, log) or [0.0])


FIGURES = StudyFigures(
    observe=observe,
    measure=lambda _, result: means_over_runs(result, "largest drift of a quantile of |r| in 20 steps", is_share=False),
)
