"""Sweeps: their trials, the finding for each optimizer, the importance of hyperparameters. Frozen records."""

from orchestrator.jobs import RunStatus
from worker.records.result import Record, Verdict

Value = bool | int | float | str | None
"""The value of a hyperparameter."""


class TrialRow(Record):
    """A trial: its hyperparameters and its result."""

    number: int
    run_id: str
    candidate: str
    parameters: dict[str, Value]
    status: RunStatus
    verdict: Verdict | None
    """Null while there is no result."""
    steps: int
    steps_total: int
    objective: float | None
    """Validation loss at the end of the budget; null of a trial that did not get there, or did not learn."""
    last_val_loss: float | None
    """The newest one, at whatever step: no ground to rank on."""
    optimizer_state_bytes: int | None
    peak_memory_bytes: int | None
    """Most bytes of tensors at once on the device."""
    device_seconds: float


class Importance(Record):
    """The share of the difference between good trials and others that lies in one hyperparameter."""

    parameter: str
    share: float
    """The share of 1 over the hyperparameters of a candidate."""


class SweepFinding(Record):
    """The finding of a sweep for one optimizer."""

    candidate: str
    optimizer: str
    title: str
    best: TrialRow | None
    """The best of the trials that ran the whole budget; null before the first of them."""
    trials: int
    converged: int
    stopped_early: int
    diverged: int
    out_of_memory: int
    at_edge: tuple[str, ...]
    """Hyperparameters whose best value lies at an end of their range: a better one may lie outside."""
    importance: tuple[Importance, ...]
    """The most important first; empty if too few trials have ended to say."""


class SweepReport(Record):
    """The answer to a sweep."""

    experiment_id: str
    name: str
    algorithm: str
    complete: bool
    """Whether every trial has ended and none follows."""
    loss_name: str
    loss_unit: str
    device: str | None
    trials_planned: int
    device_hours: float
    """Over all attempts of all trials."""
    findings: tuple[SweepFinding, ...]
    """The lowest loss first."""
    trials: tuple[TrialRow, ...]
    """The trials by number."""
    notes: tuple[str, ...]
    """Notes on the fairness of the sweep, in sentences."""

    def best(self) -> TrialRow | None:
        """Return the trial with the lowest objective of all."""
        return self.findings[0].best if self.findings else None
