"""Which rows tables show and in which order, as the view asks for it. Pure: sorting changes no rank and no number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dashboards.text.words import LeaderboardLine
from dashboards.view_state import RowKey, RunKey, RunState, ViewState
from orchestrator.jobs import CLAIMABLE, LIVE, Outcome, RunStatus
from orchestrator.records import RunRecord

Row = TypeVar("Row")

RUNS_A_PAGE = 50
"""Rows of the run table at once: a thousand would weigh a megabyte."""
STATES: dict[RunState, frozenset[RunStatus | Outcome]] = {
    "all": frozenset(RunStatus) | frozenset(Outcome),
    "waiting": CLAIMABLE | {RunStatus.PAUSED},
    "running": LIVE,
    "finished": frozenset({Outcome.FINISHED}),
    "stopped_early": frozenset({Outcome.STOPPED_EARLY}),
    "diverged": frozenset({Outcome.DIVERGED}),
    "out_of_memory": frozenset({Outcome.OUT_OF_MEMORY}),
    "failed": frozenset({Outcome.FAILED}),
    "cancelled": frozenset({Outcome.CANCELLED}),
}
"""Every run is in one of them, besides all."""
LEADER_KEYS: dict[RowKey, Callable[[LeaderboardLine], float | str | None]] = {
    "rank": lambda one: one.rank,
    "name": lambda one: one.row.title.lower(),
    "lr": lambda one: one.row.best_lr,
    "loss": lambda one: one.row.val_loss.mean if one.row.val_loss else None,
    "difference": lambda one: 0.0 if one.row.is_baseline else one.row.difference.mean if one.row.difference else None,
    "state": lambda one: one.row.optimizer_state_bytes,
    "peak": lambda one: one.row.peak_memory_bytes,
    "step": lambda one: one.row.step_seconds,
    "hours": lambda one: one.row.device_hours,
}
RUN_SORTS: dict[RunKey, Callable[[RunRecord], float | str | None]] = {
    "position": lambda run: run.position,
    "candidate": lambda run: run.candidate.lower(),
    "lr": lambda run: run.lr,
    "seed": lambda run: run.seed,
    "loss": lambda run: val_loss(run),
    "time": lambda run: run.device_seconds or None,
}


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """One page of the run table."""

    runs: tuple[RunRecord, ...]
    number: int
    pages: int
    found: int
    """Runs of the chosen state, over all pages."""
    first: int
    """Place of the page's first run among them, from 1."""
    states: tuple[tuple[RunState, int], ...]
    """How many runs each choice of states has."""


def sorted_leaders(leaders: Sequence[LeaderboardLine], view: ViewState) -> tuple[LeaderboardLine, ...]:
    """The leaderboard's lines in the view's order; what has no value stands last either way."""
    return tuple(sort_rows(leaders, LEADER_KEYS[view.sort], descending=view.descending))


def run_page(runs: Sequence[RunRecord], view: ViewState) -> RunPage:
    """The page of the run table that the view shows."""
    chosen = [run for run in runs if matches_state(run, view.run_state)]
    ordered = sort_rows(chosen, RUN_SORTS[view.run_sort], descending=view.run_descending)
    pages = max(1, -(-len(ordered) // RUNS_A_PAGE))
    number = min(view.page, pages)
    first = (number - 1) * RUNS_A_PAGE
    return RunPage(
        runs=tuple(ordered[first : first + RUNS_A_PAGE]),
        number=number,
        pages=pages,
        found=len(ordered),
        first=first + 1,
        states=tuple((state, sum(matches_state(run, state) for run in runs)) for state in STATES),
    )


def run_choices(view: ViewState, page: RunPage) -> list[tuple[str, str, bool]]:
    """(query, text, is it chosen) for each choice of states that has runs."""
    return [
        (view.replace(run_state=state).query(), f"{state.replace('_', ' ')} {number}", view.run_state == state)
        for state, number in page.states
        if number or state in ("all", view.run_state)
    ]


def matches_state(run: RunRecord, state: RunState) -> bool:
    """Whether the choice of states has this run."""
    return (run.outcome() or run.status) in STATES[state]


def val_loss(run: RunRecord) -> float | None:
    """The final validation loss; of a run that has none, the last one."""
    return run.result.final_val_loss if run.result is not None else run.last_val_loss


def sort_rows(rows: Sequence[Row], key: Callable[[Row], float | str | None], *, descending: bool) -> list[Row]:
    """In that order; what has no value stands last either way."""
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=descending), *unknown]  # type: ignore[arg-type]  # None is sorted out above
