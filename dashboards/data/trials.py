"""The order of a sweep's trials. Pure."""

import math
from collections.abc import Sequence

from orchestrator.sweeps.records import TrialRow


def sorted_trials(trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials by their objective; those without one stand last, by their latest loss."""

    def order(trial: TrialRow) -> tuple[bool, float, int]:
        loss = trial.last_val_loss if trial.objective is None else trial.objective
        return trial.objective is None, math.inf if loss is None else loss, trial.number

    return sorted(trials, key=order)
