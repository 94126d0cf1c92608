"""Scaling-law fits as records: what was fitted, how sure it is, and a verdict in a sentence."""

from typing import Literal

from pydantic import ConfigDict, Field

from orchestrator.records import Conclusion, Difference, Instability
from worker.records.result import Record

FormName = Literal["n", "n0", "d", "d0", "nd"]
"""The forms that `model.py` fits, which says what each is."""


class Estimate(Record):
    """A fitted quantity with its 95 % bootstrap interval; the bounds are null if there are too few cells for one."""

    value: float
    low: float | None
    high: float | None


class ScalingPoint(Record):
    """A cell: the runs of one candidate at one model size and token budget. A law counts it once."""

    parameters: int
    tokens: int
    loss: float
    """Mean final validation loss, nats."""
    low: float | None = None
    high: float | None = None
    """The mean's 95 % t-interval over the seeds; null with one seed. The law's intervals do not rest on it."""
    n: int = Field(ge=1)
    """Seeds."""
    is_in_law: bool = True
    """Whether the law has it; a law of sizes alone has each at its largest budget."""
    fitted: float | None = None
    """The law's loss there; null if no law is known, and where it is not in it."""

    def cell(self) -> tuple[int, int]:
        """Return parameters and tokens."""
        return self.parameters, self.tokens


class Prediction(Record):
    """The law's loss at a size and budget. The interval is the curve's, not that of one more run."""

    model_config = ConfigDict(extra="ignore")  # evidence of earlier versions says more

    parameters: int
    tokens: int
    loss: Estimate
    model: str | None = None
    """The model of that size, where one was asked for by name."""


class LawCurve(Record):
    """The law along the sizes that were trained, and beyond."""

    label: str
    """The budget of the curve; empty if there is one curve only."""
    points: tuple[Prediction, ...]


class LossDifference(Record):
    """The law's loss minus the baseline's at a size that both were trained at (of a law in tokens: at a budget)."""

    parameters: int
    tokens: int
    difference: Difference
    """Nats, on common bootstrap draws; its level covers all candidates of one size together. `n` counts cells."""


class CandidateFit(Record):
    """The scaling law of one candidate."""

    model_config = ConfigDict(extra="ignore")  # evidence of earlier versions says more

    candidate: str
    title: str
    is_baseline: bool
    points: tuple[ScalingPoint, ...]
    coefficients: dict[str, Estimate]
    """E, A and alpha, B and beta, in nats, parameters and tokens; empty if nothing could be fitted."""
    no_law: str | None = None
    """The reason why the fit is not a law, and predicts nothing; null if it is one, or nothing was fitted."""
    relative_error: float | None
    """Root mean square of the cells' log residuals: 0.01 is one per cent of the loss."""
    held_out_error: float | None = None
    """The largest models' loss as a law of the others predicts it, minus the measured one, in nats; null where the law
    needs the largest models."""
    predictions: tuple[Prediction, ...]
    loss_differences: tuple[LossDifference, ...] = ()
    """The differences to the baseline at each size (of a law in tokens: each budget), by the laws of the seeds that
    both have there; empty without both laws."""
    change: Estimate | None = None
    """Nats by which the last of these differences exceeds the first: above zero the candidate loses ground as models
    grow. Null without both laws."""
    curves: tuple[LawCurve, ...] = ()
    instability: Instability | None = None
    """The lost runs among the judged ones of all cells; null while none has ended."""
    conclusion: Conclusion = Conclusion.NO_LOSS
    """The conclusion on the difference at the largest size."""
    verdict: str
    """The verdict in a sentence or a few."""


class FitReport(Record):
    """The scaling laws of all candidates of some experiments."""

    model_config = ConfigDict(extra="ignore")  # evidence of earlier versions says more

    experiments: tuple[str, ...]
    form: FormName
    formula: str
    baseline: str
    draws: int
    """Bootstrap draws behind every interval."""
    fits: tuple[CandidateFit, ...]
    notes: tuple[str, ...]
