"""Scaling-law fits as records: what was fitted, how sure it is, and a verdict in a sentence."""

import math
from typing import Literal

from pydantic import Field

from orchestrator.records import Instability, Interval, TestedDifference
from worker.records.result import Record

FormName = Literal["n", "n0", "d", "d0", "nd"]
"""The forms that `model.py` fits, which says what each is."""


class Estimate(Record):
    """A fitted quantity with its 95 % bootstrap interval; the bounds are null where there are too few cells for one."""

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
    open_lr: float | None = None
    """Its best learning rate, where that lies at the edge of its grid or no basin is known about it: at a better one
    its loss may be lower by any amount. Null elsewhere."""
    regret: float | None = 0.0
    """How much lower its loss may be at a better rate, nats, as far as its grid left that open; null with `open_lr`."""
    is_in_law: bool = True
    """Whether a law is sought along it; not along cells of another budget than the largest that all sizes have."""
    fitted: float | None = None
    """The law's loss there; null where no law is known, and where it is not in it."""

    def place(self) -> tuple[int, int]:
        """Parameters and tokens."""
        return self.parameters, self.tokens

    def largest_regret(self) -> float:
        """The regret; infinite where the best rate is open."""
        return math.inf if self.regret is None else self.regret


class MemoryPrediction(Record):
    """What training at a size keeps at the least; activations, which depend on the batch, come on top."""

    parameter_bytes: int
    gradient_bytes: int
    state_bytes: Estimate
    """Of the optimizer: to the byte where `exact`, else from the states of the trained sizes."""
    exact: bool

    def total(self) -> Estimate:
        """Parameters, gradients and state together."""
        rest = self.parameter_bytes + self.gradient_bytes
        low, high = self.state_bytes.low, self.state_bytes.high
        return Estimate(
            value=rest + self.state_bytes.value,
            low=None if low is None else rest + low,
            high=None if high is None else rest + high,
        )


class Prediction(Record):
    """The law's loss at a size and budget. The interval is the curve's, not that of one more run."""

    parameters: int
    tokens: int
    loss: Estimate
    model: str | None = None
    """The model of that size, where one was asked for by name."""
    memory: MemoryPrediction | None = None
    """Null where no run has told how much state there is."""


class CurvePoint(Record):
    """The law at one place."""

    parameters: int
    tokens: int
    loss: Estimate


class LawCurve(Record):
    """The law along the sizes that were trained, and beyond."""

    label: str
    """Which budget it is for; empty where there is one curve only."""
    points: tuple[CurvePoint, ...]


class HeldOutPrediction(Record):
    """The largest models left out, and predicted by a law that was fitted to the others."""

    parameters: int
    measured: float
    predicted: Estimate
    error: float
    """Predicted minus measured, nats."""


class ExponentDifference(TestedDifference):
    """An exponent against the baseline's, for the hypothesis that they are equal; one of all candidates and exponents
    of the report."""

    exponent: str
    difference: Estimate


class LossDifference(Record):
    """The law's loss minus the baseline's at a size that both were trained at; negative is better."""

    parameters: int
    tokens: int
    difference: Estimate
    """Nats, on common bootstrap draws. The intervals of all sizes hold together, at 95 %, with what tuning left open; a
    bound is null where a better rate could move it by any amount."""


class Drift(TestedDifference):
    """How the difference to the baseline changes from the smallest size to the largest, by both laws; for the
    hypothesis that it is the same at both, one of all candidates of the report."""

    change: Estimate
    """Nats, difference at the largest minus difference at the smallest: above zero the candidate loses ground."""
    rate_is_open: bool = False
    """Whether better rates than those of the grids could turn it; there is no test then."""


class TypicalDifference(Record):
    """What a candidate's losses differ by from the baseline's at a typical size, beside the differences at each."""

    difference: Interval
    """Nats; mean over sizes (of a law in tokens: budgets) with its 95 % t-interval, of which sizes are the sample, and
    what tuning left open; a bound is null where a better rate could move it by any amount."""
    comparisons: int = 1
    """How many candidates' intervals hold at once."""
    spread: float | None
    """Standard deviation of the true differences between sizes, nats: what is left without the seeds' noise, 0 where
    sizes are not shown to differ; null where a size has fewer than two seeds with all that is averaged there."""
    cells_left_out: int = 0
    """Sizes at budgets that other sizes lack (of a law in tokens: budgets at sizes): they are not in it."""
    in_common: bool = True
    """Whether every size is averaged over the same budgets; else each over its own, having none in common."""


class BatchPoint(Record):
    """What one candidate needed to the target loss with one batch."""

    batch_tokens: int
    tokens: float
    """Geometric mean over the seeds."""
    n: int
    to_baseline: Interval | None
    """Tokens by the baseline's with that batch, over the seeds of both; null for the baseline."""


class CriticalBatch(Record):
    """T(B) = T_min (1 + B / B_crit) of one candidate."""

    candidate: str
    title: str
    is_baseline: bool
    points: tuple[BatchPoint, ...]
    not_reached: tuple[int, ...]
    """Batches, in tokens, of which a judged run did not get to the target, or was evaluated too seldom to tell when:
    they are not among the points."""
    open_batches: tuple[int, ...] = ()
    """Batches, in tokens, of which the best learning rate lies at the edge of its grid: at a better one they may need
    fewer tokens by any number, so that they are not among the points either."""
    least_tokens: Estimate | None
    """T_min; null below four points."""
    critical_batch_tokens: Estimate | None
    """B_crit; without an upper bound where tokens are not shown to rise with the batch, without a lower one where they
    may rise in proportion to it."""
    to_baseline: Estimate | None
    """B_crit by the baseline's, over the batches that both have."""
    comparisons: int = 1
    """How many such ratios hold at once."""
    verdict: str


class CriticalBatches(Record):
    """The critical batches of all candidates of experiments with several batches."""

    target_loss: float
    target_given: bool
    """Whether it was asked for; else it is the highest final loss of all judged runs."""
    rows: tuple[CriticalBatch, ...]
    notes: tuple[str, ...]


class DataEfficiency(Record):
    """How much data the baseline would need for a candidate's loss, both by their laws, as a multiple of what that one
    had. The interval has the errors of both laws, and what tuning left open."""

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
    no_law: str | None = None
    """Why what was fitted is no law, and predicts nothing; null where it is one, or nothing was fitted."""
    relative_error: float | None
    """Root mean square of the cells' log residuals: 0.01 is one per cent of the loss."""
    held_out: HeldOutPrediction | None
    """Null where the law needs the largest models."""
    predictions: tuple[Prediction, ...]
    against_baseline: tuple[ExponentDifference, ...]
    loss_differences: tuple[LossDifference, ...] = ()
    """To the baseline at each size (of a law in tokens: each budget), by the laws of the seeds that both have there;
    empty without both laws."""
    drift: Drift | None = None
    """Null without both laws."""
    typical_difference: TypicalDifference | None = None
    """By the measured losses, with a law or without; null for the baseline, and with fewer than three sizes."""
    data_efficiency: tuple[DataEfficiency, ...]
    curves: tuple[LawCurve, ...] = ()
    instability: Instability | None = None
    """Of the runs at its best rates, in all cells; null while none has ended."""
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
    critical_batches: CriticalBatches | None = None
    """Null but for experiments of one model with four batches or more."""
