"""Main effects: what each value of each hyperparameter adds to the loss, by least squares over a sweep's trials. Pure.

    loss = mean of the sweep + sum over hyperparameters of the effect of its value + error

Values are drawn by chance, so that effects are told apart; what hyperparameters do to each other, and chance, is the
error. An effect is against a reference value, whose own is zero. Intervals are t-intervals of least squares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.distributions import t_quantile
from orchestrator.records import Interval
from orchestrator.statistics import CONFIDENCE

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Values = Mapping[str, str]
"""Hyperparameter → value."""

FEWEST_DEGREES = 10
"""With fewer degrees of freedom the t-quantile is wide, and the error is estimated from almost nothing."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial that ran its whole budget."""

    sweep: str
    """Trials of one sweep have a mean of their own: it holds what their seed does."""
    values: Values
    loss: float


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The fitted effects."""

    columns: tuple[tuple[str, str], ...]
    """(hyperparameter, value) of each coefficient, references left out."""
    coefficients: Array
    """Of the columns, p."""
    covariance: Array
    """p × p."""
    degrees: int
    trials: int

    def of(self, values: Values) -> Interval | None:
        """What these values add to the loss together, against their references; None for one that no trial had."""
        weights = np.array([float(values.get(name) == value) for name, value in self.columns])
        if not self._knows(values):
            return None
        mean, error = float(weights @ self.coefficients), float(np.sqrt(weights @ self.covariance @ weights))
        half = t_quantile(self.degrees, (1 + CONFIDENCE) / 2) * error
        return Interval(mean=mean, low=mean - half, high=mean + half, n=self.trials)

    def _knows(self, values: Values) -> bool:
        return all((name, value) in self.columns for name, value in values.items())


def main_effects(trials: Sequence[Trial], references: Values) -> Effects | None:
    """The effects of every value but the references; None where the trials are too few to tell them apart."""
    sweeps = sorted({trial.sweep for trial in trials})
    columns = sorted({(name, trial.values[name]) for trial in trials for name in references} - set(references.items()))
    design = np.array(
        [
            [float(trial.sweep == each) for each in sweeps]
            + [float(trial.values[name] == value) for name, value in columns]
            for trial in trials
        ]
    ).reshape(len(trials), len(sweeps) + len(columns))
    degrees = len(trials) - design.shape[1]
    if not columns or degrees < FEWEST_DEGREES or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    losses = np.array([trial.loss for trial in trials])
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ losses
    variance = float(np.sum((losses - design @ found) ** 2)) / degrees
    first = len(sweeps)
    return Effects(
        columns=tuple(columns),
        coefficients=found[first:],
        covariance=variance * inverse[first:, first:],
        degrees=degrees,
        trials=len(trials),
    )
