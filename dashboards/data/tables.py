"""The rows of tables and their order, as the view asks for them. Pure: sorting changes no rank and no number."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from dashboards.text.words import LeaderboardLine
from dashboards.view_state import RowKey, ViewState
from orchestrator.jobs import LIVE
from orchestrator.records import RunRecord
from orchestrator.sweeps.records import TrialRow

Row = TypeVar("Row")

RUNS_SHOWN = 50
"""Runs on an experiment's page: a thousand would weigh a megabyte, and the table of all runs has them."""
LEADER_KEYS: dict[RowKey, Callable[[LeaderboardLine], float | str | None]] = {
    "rank": lambda line: line.rank,
    "name": lambda line: line.row.title.lower(),
    "lr": lambda line: line.row.best_lr,
    "loss": lambda line: line.row.val_loss.mean if line.row.val_loss else None,
    "difference": lambda one: 0.0 if one.row.is_baseline else one.row.difference.mean if one.row.difference else None,
    "state": lambda line: line.row.optimizer_state_bytes,
    "peak": lambda line: line.row.peak_memory_bytes,
    "step": lambda line: line.row.step_seconds,
    "hours": lambda line: line.row.device_hours,
}


def sorted_leaders(leaders: Sequence[LeaderboardLine], view: ViewState) -> tuple[LeaderboardLine, ...]:
    """Return the leaderboard's lines in the view's order; what has no value stands last either way."""
    return tuple(sort_rows(leaders, LEADER_KEYS[view.sort], descending=view.descending))


def first_runs(runs: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """Return the first runs of an experiment, those that are being trained before all others."""
    return sorted(runs, key=lambda run: (run.status not in LIVE, run.position))[:RUNS_SHOWN]


def sort_rows(rows: Sequence[Row], key: Callable[[Row], float | str | None], *, descending: bool) -> list[Row]:
    """Return the rows in that order; what has no value stands last either way."""
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=descending), *unknown]  # type: ignore[arg-type]  # None is sorted out above


def sorted_trials(trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials by their objective; those without one stand last, by their latest loss."""

    def order(trial: TrialRow) -> tuple[bool, float, int]:
        loss = trial.last_val_loss if trial.objective is None else trial.objective
        return trial.objective is None, math.inf if loss is None else loss, trial.number

    return sorted(trials, key=order)
