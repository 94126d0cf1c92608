"""`debias-theorem`: theorem 2 as a numerical experiment, the bias of the corrected momentum over t against its bound.

Many replicas of algorithm 1's lines 4 to 8 on one matrix, with gradients G_t = S + noise: S fixed, of falling spectrum,
so that what a low rank drops has a mean that correction must bring back.
"""

from orchestrator.studies.result import Figure, StudyResult
from orchestrator.studies.study import Numbers, Study, StudyFigures

BETA1 = 0.9
"""The paper's."""
REPLICAS = 64
STEPS = (1, 2, 3, 5, 10, 20, 40)
Z = 3.0
"""Standard errors of the mean over replicas to each side of a measured bias."""


def compute() -> Numbers:
    """Return `bias`, `plain` (without correction), `error` (one standard error) and `mean_residual` at some t, and the
    exact solver's largest mean residual C."""
    from orchestrator.studies.debias_theorem.replicas import follow_replicas  # torch

    return follow_replicas(BETA1, REPLICAS, STEPS)


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """Return at every t the bias by the theorem's bound, C b1^(t+1) / (1 − b1), and by that of the same proof without
    the residual r_0 = 0, larger by 1 / b1; at the last t the share of the bias that remains after correction."""
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
    """Return the figure in that unit, with an interval of `Z` standard errors."""
    bias, error = values[f"bias/{t}"], values[f"error/{t}"]
    low, high = max(bias - Z * error, 0.0), bias + Z * error
    return Figure(metric=metric, candidate=f"t = {t}", value=bias / unit, low=low / unit, high=high / unit, n=REPLICAS)


FIGURES = StudyFigures(compute=compute, version="1", measure=measure)
