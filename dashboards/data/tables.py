"""The rows of tables and their order. Pure."""

import math
from collections.abc import Sequence

from orchestrator.jobs import LIVE
from orchestrator.records import RunRecord
from orchestrator.sweeps.records import TrialRow

RUNS_SHOWN = 50
"""Runs on an experiment's page: a thousand would weigh a megabyte, and the table of all runs has them."""


def first_runs(runs: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """Return the first runs of an experiment, those that are being trained before all others."""
    return sorted(runs, key=lambda run: (run.status not in LIVE, run.position))[:RUNS_SHOWN]


def sorted_trials(trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials by their objective; those without one stand last, by their latest loss."""

    def order(trial: TrialRow) -> tuple[bool, float, int]:
        loss = trial.last_val_loss if trial.objective is None else trial.objective
        return trial.objective is None, math.inf if loss is None else loss, trial.number

    return sorted(trials, key=order)
