"""The figures of panels (`dashboards/data/panels.py`): a line for each run, or means with their bands."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dashboards.data.any_run import AnyRun
from dashboards.data.panels import METRICS, Panel
from dashboards.data.reader import Reader, Snapshot
from dashboards.data.series import (
    MAX_POINTS,
    Series,
    across_seeds,
    even_indices,
    numbers,
    smooth,
    thin_band,
    window_of,
)
from dashboards.figures.base import HEADROOM, ExperimentView, Figure, add_legend, band, figure, layout_of, line, plain
from dashboards.palette import Style, ThemeName, numbered_style, variant
from dashboards.text.words import candidate_title
from dashboards.view_state import AXIS_TITLES, ViewState
from orchestrator.columns import Array
from orchestrator.records import RunRecord
from orchestrator.sweeps.records import SweepReport

MOST_LINES = 96
"""Runs of one panel, the first ones."""
LEGEND_SHARE = 0.3
"""The share of a panel's height for the legend: many means are more names than fit, and the plot needs its room."""
LOSSES = frozenset({"train_loss", "val_loss"})
FEW_POINTS = 60
"""The number of points up to which they are marked: a metric that is reported now and then has no line to speak of."""


def compared_runs(snapshot: Snapshot, view: ViewState, panel: Panel) -> list[RunRecord]:
    """Return the runs that an experiment's page compares: those of each shown candidate at its best learning rate, or
    at all rates if the panel groups by rate."""
    best = {row.candidate: row.best_lr for row in snapshot.comparison.rows}
    order = {name: index for index, name in enumerate(best)}
    shown = (
        run
        for run in snapshot.runs
        if run.candidate not in view.hidden and (panel.by == "lr" or best.get(run.candidate) in (None, run.lr))
    )
    return sorted(shown, key=lambda run: (order.get(run.candidate, len(order)), run.lr, run.seed))


def experiment_panel(view: ExperimentView) -> Figure:
    """Return the panel that is asked for: of a comparison its compared runs, of a scaling experiment those of every
    cell, of a sweep all trials."""
    panel = Panel.parse(view.panel)
    runs = [AnyRun(record=run) for run in _experiment_runs(view, panel)]
    lines = panel_lines(view.reader, runs, panel, view.snapshot.styles)
    return draw_panel(lines, panel, view.theme, runs=len(runs))


def _experiment_runs(view: ExperimentView, panel: Panel) -> list[RunRecord]:
    snapshot = view.snapshot
    if isinstance(snapshot.answer, SweepReport):
        return list(snapshot.runs)
    whole = view.reader.experiments.get(snapshot.experiment.id)
    if view.state.cell or not whole.spec.cells():
        return compared_runs(snapshot, view.state, panel)
    cells = (view.reader.snapshot(whole.id, cell.key) for cell in whole.spec.cells())
    return [run for cell in cells for run in compared_runs(cell, view.state, panel)]


@dataclass(frozen=True, kw_only=True)
class PanelLine:
    """A run's line in a panel."""

    run: AnyRun
    look: Style | None
    own_look: Style | None
    """The look of its candidate, for means."""
    rows: Series
    """The metric is its `smoothed` column."""


def panel_lines(reader: Reader, runs: Iterable[AnyRun], panel: Panel, styles: Mapping[str, Style]) -> list[PanelLine]:
    """Return the lines of runs of any source; `styles` are by key, or by candidate where these are drawn. A run that
    did not report the metric, or what the panel goes over, has none."""
    shown = [run for run in runs if run.has_metric(panel.metric)][:MOST_LINES]
    wanted = tuple(dict.fromkeys((panel.metric, "tokens", "val_loss", "step_seconds")))
    rows_by_key: dict[str, Series] = {}
    for run, columns, whole in reader.many_series(shown, wanted):
        values = columns.column(panel.metric)
        if np.isfinite(values[np.isfinite(getattr(whole, panel.x))]).any():
            window = window_of(values.size, panel.smooth / 100)
            rows_by_key[run.key] = replace(whole, smoothed=smooth(values, window))
    return [
        PanelLine(
            run=run,
            look=styles.get(run.key) or styles.get(run.candidate),
            own_look=styles.get(run.candidate),
            rows=rows_by_key[run.key],
        )
        for run in shown
        if run.key in rows_by_key
    ]


def draw_panel(lines: Collection[PanelLine], panel: Panel, theme: ThemeName, *, runs: int = 0) -> Figure:
    """Return the metric of the panel: a line for each run, or a mean for each value of the field that it groups by. Of
    more `runs` than a panel draws, the horizontal axis says how many are drawn."""
    title = plain(METRICS.get(panel.metric, panel.metric))
    data = _bands(lines, panel, theme) if panel.by else _lines(lines, panel, theme)
    x_title = AXIS_TITLES[panel.x] + (f" · {len(lines)} of {runs} runs drawn" if runs > MOST_LINES else "")
    layout = layout_of(theme, x_title=x_title, y_title=title)
    named = sum(1 for trace in data if "name" in trace)
    layout["hovermode"] = "x unified" if named <= 6 else "closest"
    layout["uirevision"] = panel.word()
    if panel.by:
        add_legend(layout, maxheight=LEGEND_SHARE)
    if panel.log:
        layout["yaxis"] |= {"type": "log", "nticks": 6}
    elif panel.metric in LOSSES and (bounds := _loss_bounds([line.rows.smoothed for line in lines])):
        layout["yaxis"]["range"] = list(bounds)
    return figure(data, layout, theme, empty=f"None of these runs has reported {title}.")


def _loss_bounds(columns: Iterable[Array]) -> tuple[float, float] | None:
    """Return the lowest loss and a bound a little above the highest initial one: a diverging run leaves the figure
    instead of flattening the others. None if none of them does, or where losses are below zero: training losses of a
    reward rise and fall."""
    finite_losses = [values for column in columns if (values := column[np.isfinite(column)]).size]
    if not finite_losses or any(bool((values < 0).any()) for values in finite_losses):
        return None
    first, low = max(float(losses[0]) for losses in finite_losses), min(float(losses.min()) for losses in finite_losses)
    if max(float(losses.max()) for losses in finite_losses) <= HEADROOM * first:
        return None
    return low - 0.05 * (first - low), HEADROOM * first


def _lines(lines: Iterable[PanelLine], panel: Panel, theme: ThemeName) -> list[dict[str, Any]]:
    data = []
    for index, panel_line in enumerate(lines):
        look, series = panel_line.look or numbered_style(index), panel_line.rows
        x = getattr(series, panel.x)
        indices = np.flatnonzero(np.isfinite(series.smoothed) & np.isfinite(x))
        indices = indices[even_indices(indices.size, MAX_POINTS)]
        colour = look.colour(theme)
        mode = "lines+markers" if indices.size <= FEW_POINTS else "lines"
        drawn = line(x[indices], series.smoothed[indices], plain(panel_line.run.title()), colour, mode=mode)
        data.append(drawn | {"line": {"width": 1.5, "color": colour, "dash": look.dash}, "marker": {"size": 4}})
    return data


def _bands(lines: Iterable[PanelLine], panel: Panel, theme: ThemeName) -> list[dict[str, Any]]:
    """Return a mean for each value of the field, never over different optimizers or sources."""
    groups: dict[tuple[str, str, str], list[PanelLine]] = {}
    for panel_line in lines:
        run = panel_line.run
        owner = run.candidate if panel.by in ("candidate", "lr", "seed") else run.optimizer
        key = owner, run.source, run.fields().get(panel.by, "none")
        groups.setdefault(key, []).append(panel_line)
    has_several = len({(owner, source) for owner, source, _ in groups}) > 1
    values = list(dict.fromkeys(value for _, _, value in groups))
    data: list[dict[str, Any]] = []
    for index, ((owner, source, value), group_lines) in enumerate(groups.items()):
        metric_band = thin_band(across_seeds([panel_line.rows for panel_line in group_lines], "smoothed", panel.x))
        if not metric_band.x.size:
            continue
        look = group_lines[0].own_look if panel.by == "candidate" or has_several else None
        look = variant(look, 0 if panel.by == "candidate" else values.index(value)) if look else numbered_style(index)
        colour = look.colour(theme)
        title = candidate_title(owner, group_lines[0].run.optimizer) if source == "bench" else f"{owner} · {source}"
        name = title if panel.by == "candidate" else f"{title}, {panel.by} {value}"
        if len(group_lines) > 1:
            data += band(numbers(metric_band.x), numbers(metric_band.low), numbers(metric_band.high), colour, 0.16)
        mode = "lines+markers" if metric_band.x.size <= FEW_POINTS else "lines"
        mean = line(
            metric_band.x, metric_band.mean, plain(f"{name} (n = {len(group_lines)})"), colour, width=1.8, mode=mode
        )
        mean["line"] |= {"dash": look.dash}
        data.append(mean | {"showlegend": True, "marker": {"size": 4, "symbol": look.symbol, "color": colour}})
    return data
