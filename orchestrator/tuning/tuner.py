"""`Tuner`: what every method of tuning answers; whoever adds runs or reads results asks it and no other.

    trials so far ─► ask ─► the settings to train next, none at the end
                  └► setting ─► the one that is judged on fresh seeds

A trial is one setting, trained on every tuning seed. No two trials of a candidate have the same learning rate, so the
rate is a trial's name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean, median
from typing import Protocol

from optim.catalog import Scalar
from orchestrator.jobs import Outcome, RunStatus, outcome_of
from worker.records.result import Verdict

Setting = Mapping[str, Scalar]
"""Hyperparameter → value; `lr` is always one of them."""
Trials = Mapping[float, float]
"""Learning rate of a trial → its mean loss over the tuning seeds; infinite where one of its runs was lost."""


@dataclass(frozen=True, kw_only=True)
class RunFact:
    """A run as tuning and analysis take it, whoever trained it."""

    id: str
    candidate: str
    model: str = ""
    steps: int = 0
    """The steps of the whole run."""
    lr: float
    seed: int
    status: RunStatus
    verdict: Verdict | None = None
    """None without a result."""
    loss: float | None
    """Final validation loss; None while there is none, and of a run that was lost."""
    step_seconds: float | None = None
    """Mean device time of a step; None without a result."""
    is_time_up: bool = False
    """Whether it was stopped because a limit of its time was reached."""

    def has_ended(self) -> bool:
        """Return whether it has a result, or its time was up: which nobody will change."""
        return self.verdict is not None or self.is_time_up

    def outcome(self) -> Outcome | None:
        """Return the outcome; None if it has not ended, or cannot be read."""
        if self.status is RunStatus.SUCCEEDED and self.verdict is None:
            return None
        return outcome_of(self.status, self.verdict)


class Tuner(Protocol):
    """The tuning of one candidate."""

    def ask(self, tried: Trials) -> tuple[Setting, ...]:
        """Return the settings to train next, given that all of `tried` have ended; none when the search is over."""
        ...

    def setting(self, tried: Trials) -> Setting | None:
        """Return the setting to judge; None if no trial has a finite loss."""
        ...

    def is_at_edge(self, tried: Trials) -> bool:
        """Return whether the best trial is the lowest or highest rate that was tried, so a better one may lie
        outside."""
        ...


def mean_losses(runs: Iterable[RunFact]) -> Trials:
    """Return the mean losses of ended trials by their learning rates; infinite where one of the runs has no loss."""
    by_rate: dict[float, list[float]] = {}
    for run in runs:
        by_rate.setdefault(run.lr, []).append(inf if run.loss is None else run.loss)
    return {rate: fmean(losses) for rate, losses in by_rate.items()}


def steps_at_equal_time(steps: int, trials: Iterable[RunFact], rivals: Iterable[RunFact]) -> int | None:
    """Return the steps that a candidate makes, at the median pace of its trials, while its rivals make `steps`; None
    if a pace is unknown."""
    paces = [[run.step_seconds for run in runs if run.step_seconds] for runs in (trials, rivals)]
    if not all(paces):
        return None
    own_pace, pace_of_rivals = map(median, paces)
    return max(1, round(steps * pace_of_rivals / own_pace))


def best_rate(tried: Trials) -> float | None:
    """Return the rate of the lowest mean loss; None if no trial has a finite one."""
    finite = {rate: loss for rate, loss in tried.items() if isfinite(loss)}
    return min(finite, key=lambda rate: (finite[rate], rate)) if finite else None


def rate_of(setting: Setting) -> float:
    """Return the learning rate of a setting."""
    rate = setting["lr"]
    assert isinstance(rate, int | float)
    return float(rate)
