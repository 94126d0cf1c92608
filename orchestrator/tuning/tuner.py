"""`Tuner`: what every method of tuning answers; whoever adds runs or reads results asks it and no other.

    trials so far ─► ask ─► the settings to train next, none at the end
                  └► setting ─► the one that is judged on fresh seeds

A trial is one setting, trained on every tuning seed. No two trials of a candidate have the same learning rate, so the
rate is a trial's name.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Protocol

from optim.catalog import Scalar

Setting = Mapping[str, Scalar]
"""Hyperparameter → value; `lr` is always one of them."""
Trials = Mapping[float, float]
"""Learning rate of a trial → its mean loss over the tuning seeds; infinite where one of its runs was lost."""


class Tuner(Protocol):
    """The tuning of one candidate."""

    def ask(self, tried: Trials) -> tuple[Setting, ...]:
        """The settings to train next, given that all of `tried` have ended; none when the search is over."""
        ...

    def setting(self, tried: Trials) -> Setting | None:
        """The setting to judge; None where no trial has a finite loss."""
        ...

    def is_at_edge(self, tried: Trials) -> bool:
        """Whether the best trial is the lowest or highest rate that was tried, so a better one may lie outside."""
        ...


def best_rate(tried: Trials) -> float | None:
    """The rate of the lowest mean loss; None where no trial has a finite one."""
    finite = {rate: loss for rate, loss in tried.items() if isfinite(loss)}
    return min(finite, key=lambda rate: (finite[rate], rate)) if finite else None


def rate_of(setting: Setting) -> float:
    """The learning rate of a setting."""
    rate = setting["lr"]
    assert isinstance(rate, int | float)
    return float(rate)
