"""The figure of loss curves: a line per candidate, the mean of its seeds at its best learning rate, and their band."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from dashboards.data.reader import Reader, Snapshot
from dashboards.data.series import Band, Series, across_seeds, numbers, thin_band
from dashboards.figures.base import HEADROOM, ExperimentView, Figure, band, figure, layout_of, plain, trace
from dashboards.palette import Style, ThemeName
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from dashboards.text.words import loss_title
from dashboards.view_state import AXIS_TITLES, ViewState
from orchestrator.jobs import Outcome
from orchestrator.records import CandidateRow, RunRecord

BROKEN_OFF = frozenset({Outcome.FAILED, Outcome.CANCELLED, Outcome.OUT_OF_MEMORY})
STEEP_SHARE = 0.15
"""Share of the budget after which losses set the loss axis: beside the first steep fall all candidates look alike."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """All seeds of one candidate at its best learning rate so far."""

    candidate: str
    title: str
    lr: float | None
    """None if no rate has a result."""
    style: Style
    seeds: tuple[Series, ...]


def experiment_curves(view: ExperimentView) -> Figure:
    """Return the loss curves of the candidates that the view shows."""
    snapshot = view.snapshot
    return loss_curves(
        tuple(_curves(view.reader, snapshot, view.state)),
        view.state,
        _budget(snapshot, view.state),
        view.theme,
        title=loss_title(snapshot.comparison),
    )


def loss_curves(
    curves: Sequence[Curve],
    view: ViewState,
    budget: float | None,
    theme: ThemeName,
    *,
    title: str = LOSS_IN_NATS,
) -> Figure:
    """Draw training loss (thin, smoothed, with the band of the seeds) and validation loss (markers) of every candidate.

    `budget` is the x value at the end of a whole run, where it is known: the axis then shows what is still to come.
    `title` is the loss axis's.
    """
    data = [curve_trace for curve in curves for curve_trace in _curve_traces(curve, view, theme)]
    layout = layout_of(theme, x_title=AXIS_TITLES[view.x], y_title=title)
    layout["hovermode"] = "x unified" if len(curves) <= 8 else "closest"
    _set_ranges(layout, curves, view, budget)
    return figure(data, layout, theme, empty="Losses appear here as soon as a run reports its first step.")


def _curve_traces(curve: Curve, view: ViewState, theme: ThemeName) -> list[Any]:
    colour, dash = curve.style.colour(theme), curve.style.dash
    marks = _validation_line(curve, across_seeds(curve.seeds, "val_loss", view.x), colour)
    training = {"name": marks["name"], "hovertemplate": "%{y:.4f} in training"}
    smoothed_band = thin_band(across_seeds(curve.seeds, "smoothed", view.x))
    positions = numbers(smoothed_band.x)
    look = {"width": 1.2, "color": colour, "dash": dash}
    mean = trace("lines", positions, numbers(smoothed_band.mean), line=look, opacity=0.8, **training)
    return [*band(positions, numbers(smoothed_band.low), numbers(smoothed_band.high), colour, 0.13), mean, marks]


def _validation_line(curve: Curve, loss_band: Band, colour: str) -> dict[str, Any]:
    """Return marks joined from the first trained evaluation on: a line from the untrained loss would cross empty
    space."""
    trained = loss_band.x > 0
    return trace(
        "lines+markers",
        numbers(loss_band.x[trained]),
        numbers(loss_band.mean[trained]),
        name=plain(curve.title) + (f" · lr {formats.rate(curve.lr)}" if curve.lr is not None else ""),
        line={"width": 2, "color": colour, "dash": curve.style.dash},
        marker={"size": 7, "symbol": curve.style.symbol, "color": colour},
        hovertemplate="%{y:.4f}",
    )


def _set_ranges(layout: dict[str, Any], curves: Sequence[Curve], view: ViewState, budget: float | None) -> None:
    """Fix both axes: x over the whole budget, y around the losses after the first steep fall."""
    drawn = [seed for curve in curves for seed in curve.seeds if seed.steps.size]
    end = budget or max((float(getattr(seed, view.x)[-1]) for seed in drawn), default=0.0)
    layout["xaxis"]["range"] = [0.0, 1.015 * end] if end else None
    bounds = _loss_bounds(drawn, view, end)
    if bounds and view.log and bounds[0] > 0:  # a reward's negative has no logarithm
        layout["yaxis"] |= {"type": "log", "nticks": 6, "range": [float(np.log10(bound)) for bound in bounds]}
    elif bounds:
        layout["yaxis"]["range"] = list(bounds)
    layout["uirevision"] = view.figure_query()


def _loss_bounds(seeds: Sequence[Series], view: ViewState, end: float) -> tuple[float, float] | None:
    """Return the lowest and highest loss after the steep fall; divergence beyond the untrained loss does not count.
    What begins below zero is a reward's negative, of which training losses rise and fall."""
    losses = [np.concatenate([seed.train_loss, seed.val_loss]) for seed in seeds]
    positions = [np.tile(getattr(seed, view.x), 2) for seed in seeds]
    if not seeds:
        return None
    loss, position = np.concatenate(losses), np.concatenate(positions)
    untrained = [seed.val_loss[0] for seed in seeds if np.isfinite(seed.val_loss[0])]
    limit = HEADROOM * max(untrained) if untrained and min(untrained) > 0 else np.inf
    sane = np.isfinite(loss) & (loss <= limit)
    chosen = sane & (position >= STEEP_SHARE * end)
    every = loss[chosen] if chosen.sum() >= 2 else loss[sane]  # too early: show all that there is
    if every.size < 2:
        return None
    low, high = float(every.min()), float(every.max())
    margin = 0.05 * (high - low) or 0.05 * abs(high)
    return max(low - margin, 0.5 * low) if low > 0 else low - margin, high + margin


def _curves(reader: Reader, snapshot: Snapshot, view: ViewState) -> Iterator[Curve]:
    """Yield a curve for each candidate in view; points of the others are not read."""
    for row in snapshot.comparison.rows:
        lr = row.best_lr
        if lr is None:  # before its first result, that of the run that has come furthest
            candidate_runs = [run for run in snapshot.runs if run.candidate == row.candidate]
            lr = max(candidate_runs, key=lambda run: run.step).lr if candidate_runs else None
        if row.candidate not in view.hidden and lr is not None:
            yield Curve(
                candidate=row.candidate,
                title=row.title,
                lr=lr,
                style=snapshot.styles[row.candidate],
                seeds=reader.series(_runs(snapshot, row, lr)),
            )


def _runs(snapshot: Snapshot, row: CandidateRow, lr: float) -> list[RunRecord]:
    # In a tuned comparison by the runs that its mean is of, not by those that chose the rate.
    final = row.final.run_ids if row.final else None
    runs_at_rate = [run for run in snapshot.runs if run.candidate == row.candidate and run.lr == lr and run.attempt > 0]
    chosen = [run for run in runs_at_rate if final is None or run.id in final]
    # A run that broke off has no part in the leaderboard's mean; here it would end the mean of the others.
    return [run for run in chosen if run.outcome() not in BROKEN_OFF] or chosen


def _budget(snapshot: Snapshot, view: ViewState) -> float | None:
    """Return the x value at which every run ends; None for seconds and hours, which are unknown in advance."""
    workload = snapshot.experiment.spec.workload
    match view.x:
        case "steps":
            return workload.budget.steps
        case "tokens":
            return workload.tokens()
        case "seconds" | "hours":
            return None
        case _:
            assert_never(view.x)
