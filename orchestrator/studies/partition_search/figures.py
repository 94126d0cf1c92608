"""`partition-search`: what each value of each hyperparameter of a sweep adds to the loss, by least squares over trials.

    loss = mean of the sweep + sum over hyperparameters of the effect of its value + error

Values are drawn by chance, so that effects can be separated; what hyperparameters do to each other, and chance, is the
error. An effect is against full momentum, whose own is zero; intervals are t-intervals of least squares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.statistics import CONFIDENCE, t_quantile
from orchestrator.kinds.block_rules import PLAN, PREFIX
from orchestrator.kinds.sweep import LR
from orchestrator.records import Interval
from orchestrator.studies.result import Figure, StudyResult, interval_figure
from orchestrator.studies.study import Study, StudyFigures

Array = NDArray[np.float64]
Values = Mapping[str, str]
"""Hyperparameter → value."""

METRIC = "loss against full momentum, nats"
FULL = "full"
FEWEST_DEGREES = 10
"""The fewest degrees of freedom: with fewer the t-quantile is wide, and the error is estimated from almost nothing."""

PATTERNS = {
    "embedding": "*.embed_tokens.weight",
    "query": "*.q_proj.weight",
    "key": "*.k_proj.weight",
    "value": "*.v_proj.weight",
    "attention output": "*.o_proj.weight",
    "router": "*.mlp.gate.weight",
    "experts": "*.experts.*",
    "output head": "lm_head.weight",
}
"""Mixtral's roles of blocks by their names; the paper's models have neither routers nor experts."""
PLANNED = {
    "embedding": "none", "query": "low-rank", "key": "low-rank", "value": FULL, "attention output": "none",
    "router": FULL, "experts": "low-rank", "output head": "none",
}  # fmt: skip
"""The state of each role in AdaPM's own plan."""


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """A trial that ran its whole budget."""

    sweep: str
    """Trials of one sweep have a mean of their own: it holds what their seed does."""
    values: Values
    loss: float


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The fitted effects."""

    columns: tuple[tuple[str, str], ...]
    """(hyperparameter, value) of each coefficient; references, whose effect is zero, have none."""
    coefficients: Array
    """The coefficients of the columns, p."""
    covariance: Array
    """p × p."""
    degrees: int
    trials: int

    def sum_of(self, values: Values) -> Interval:
        """Return the loss that these values add together; others are the references. The intervals of the roles hold
        together (Bonferroni)."""
        weights = np.array([float(values.get(name) == value) for name, value in self.columns])
        mean, error = float(weights @ self.coefficients), float(np.sqrt(weights @ self.covariance @ weights))
        half = t_quantile(self.degrees, 1 - (1 - CONFIDENCE) / (2 * len(PATTERNS))) * error
        return Interval(mean=mean, low=mean - half, high=mean + half, n=self.trials)


def main_effects(trials: Sequence[SearchTrial], references: Values) -> Effects | None:
    """Return the effects of every value but the references; None if the trials are too few to separate them."""
    sweeps = sorted({trial.sweep for trial in trials})
    columns = sorted({(name, trial.values[name]) for trial in trials for name in references} - set(references.items()))
    design = np.array(
        [
            [float(trial.sweep == sweep) for sweep in sweeps]
            + [float(trial.values[name] == value) for name, value in columns]
            for trial in trials
        ]
    ).reshape(len(trials), len(sweeps) + len(columns))
    degrees = len(trials) - design.shape[1]
    if not columns or degrees < FEWEST_DEGREES or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    losses = np.array([trial.loss for trial in trials])
    inverse = np.linalg.inv(design.T @ design)
    solution = inverse @ design.T @ losses
    variance = float(np.sum((losses - design @ solution) ** 2)) / degrees
    first = len(sweeps)
    return Effects(
        columns=tuple(columns),
        coefficients=solution[first:],
        covariance=variance * inverse[first:, first:],
        degrees=degrees,
        trials=len(trials),
    )


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """Return the loss that less than full momentum adds, of each role by itself, and of AdaPM's whole plan."""
    trials = [
        SearchTrial(
            sweep=part.name,
            values={role: _kept(role, run.hyperparameters) for role in PATTERNS} | {LR: f"{run.lr:g}"},
            loss=run.loss,
        )
        for part in result.parts
        for run in part.runs
        if run.ended_well() and run.loss is not None
    ]
    rates = sorted({trial.values[LR] for trial in trials}, key=float)
    effects = main_effects(trials, {LR: rates[0]} | dict.fromkeys(PATTERNS, FULL)) if rates else None
    if effects is None:
        return []
    figures = [
        interval_figure(
            METRIC,
            f"{role}: {setting}",
            effects.sum_of({role: setting}),
            note="as AdaPM's plan" if setting == PLANNED[role] else "",
        )
        for role, setting in effects.columns
        if role in PATTERNS
    ]
    return [*figures, interval_figure(METRIC, "AdaPM's plan: all roles", effects.sum_of(PLANNED))]


def _kept(role: str, hyperparameters: Mapping[str, object]) -> str:
    value = hyperparameters[f"{PREFIX}{PATTERNS[role]}"]
    return PLANNED[role] if value == PLAN else str(value)


FIGURES = StudyFigures(measure=measure)
