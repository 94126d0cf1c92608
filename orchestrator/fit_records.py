"""Scaling-law fits as records: what was fitted, how sure it is, and a verdict in a sentence."""

from pydantic import Field

from orchestrator.scaling import FormName
from worker.record import Record


class Estimate(Record):
    """A fitted quantity with its 95 % bootstrap interval; the bounds are null where there are too few runs for one."""

    value: float
    low: float | None
    high: float | None


class ScalingPoint(Record):
    """The runs of one candidate at one model size and token budget."""

    parameters: int
    tokens: int
    loss: float
    """Mean final validation loss, nats."""
    n: int = Field(ge=1)
    """Seeds."""


class Prediction(Record):
    """The law's loss at a size and budget. The interval is the curve's, not that of one more run."""

    parameters: int
    tokens: int
    loss: Estimate


class HeldOut(Record):
    """The largest models left out, and predicted by a law that was fitted to the others."""

    parameters: int
    measured: float
    predicted: Estimate
    error: float
    """Predicted minus measured, nats."""


class ExponentDifference(Record):
    """An exponent against the baseline's, for the hypothesis that they are equal."""

    exponent: str
    difference: Estimate
    p_value: float | None
    p_value_holm: float | None
    """Corrected over the candidates and exponents of the report by Holm's method."""


class DataEfficiency(Record):
    """How much data the baseline would need for what a candidate reached, as a multiple of what that one had."""

    parameters: int
    tokens: int
    ratio: float | None
    """D_eff / D; null where the baseline's law never gets there, whatever the data."""
    low: float | None
    high: float | None


class CandidateFit(Record):
    """The scaling law of one candidate."""

    candidate: str
    title: str
    is_baseline: bool
    points: tuple[ScalingPoint, ...]
    coefficients: dict[str, Estimate]
    """E, A and alpha, B and beta, in nats, parameters and tokens; empty where nothing could be fitted."""
    relative_error: float | None
    """Root mean square of the log residuals: 0.01 is one per cent of the loss."""
    held_out: HeldOut | None
    """Null where the law needs the largest models."""
    predictions: tuple[Prediction, ...]
    against_baseline: tuple[ExponentDifference, ...]
    data_efficiency: tuple[DataEfficiency, ...]
    verdict: str
    """One sentence or a few."""


class FitReport(Record):
    """The scaling laws of all candidates of some experiments."""

    experiments: tuple[str, ...]
    form: FormName
    formula: str
    baseline: str
    draws: int
    """Bootstrap draws behind every interval."""
    fits: tuple[CandidateFit, ...]
    notes: tuple[str, ...]
